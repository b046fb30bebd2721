"""A few sentences of a prepared corpus for the page."""

from pathlib import Path

import numpy as np
from lhotse.cut import Cut

from transducer_gn.common.errors import UserError
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.data.cuts import stored_audio
from transducer_gn.data.labels import group_of, group_order, time_spans
from transducer_gn.data.prepared import PreparedData
from transducer_gn.serving.pages import Sentence

PER_GROUP = 4
LARGEST = 32767


def read_sentences(folder: Path) -> list[Sentence]:
    """Some of the first test set of a folder that prepare.sh made, of each of its groups."""
    data = PreparedData(folder)
    cuts: dict[str, list[Cut]] = {}
    for cut in data.cuts(data.parts("test")[0]):
        cuts.setdefault(group_of(cut.supervisions[0].custom or {}), []).append(cut)
    chosen = []
    for group in sorted(cuts, key=group_order):
        # Long ones, in which there is more to see.
        chosen += sorted(cuts[group], key=lambda cut: (-cut.duration, cut.id))[:PER_GROUP]
    # Those in which there is something to point out come first.
    return sorted(map(sentence_of, chosen), key=lambda sentence: -len(sentence.spans))


def sentence_of(cut: Cut) -> Sentence:
    """The recording and the text of a cut."""
    if cut.sampling_rate != SAMPLING_RATE:
        raise UserError(f"{cut.id}: the page's sentences need {SAMPLING_RATE} samples per second")
    said = cut.supervisions[0]
    samples = np.clip(np.rint(stored_audio(cut) * (LARGEST + 1)), -LARGEST - 1, LARGEST).astype("<i2")
    return Sentence(cut.id, said.text, samples.tobytes(), time_spans(said.custom or {}))
