"""Invariant: after every frame the shares of the two readings are those of the search's own hypotheses."""

import pytest

from transducer_gn.config import RecognitionConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.model.subsampling import subsampled_lengths
from transducer_gn.recognition.system import load_system
from transducer_gn.reporting.figures import readings_figure
from transducer_gn.search.beam import beam_search
from transducer_gn.synthetic.readings import BEAM, ambiguous_batch, follow_readings


@pytest.fixture(scope="module", params=["local", "global"])
def system(runs, request):
    return load_system(runs / request.param)


def test_readings_of_a_real_system(system, toy):
    batch = ambiguous_batch(system, PreparedData(toy.folder), "test")
    assert set(batch.kinds) == {"ambiguous"}
    followed = follow_readings(system, batch)
    chunk = system.chunk(RecognitionConfig())
    frames, lengths = system.model.encoder(batch.features, batch.feature_lengths, chunk)
    found = beam_search(system.model, frames, lengths, BEAM, BEAM, system.alpha)
    for i, readings in enumerate(followed):
        assert len(readings.seconds) == len(readings.right) == int(subsampled_lengths(batch.feature_lengths)[i])
        assert readings.words[0] in batch.texts[i].split() and readings.words[1] not in batch.texts[i].split()
        assert all(0 <= a + b <= 1 + 1e-9 for a, b in zip(readings.right, readings.wrong, strict=True))
        # The last frame's shares, from the search as others call it.
        scores = found.scores[i]
        weights = [2.718281828459045 ** (score - max(scores)) for score in scores]
        for word, share in zip(readings.words, (readings.right[-1], readings.wrong[-1]), strict=True):
            texts = [system.tokenizer.decode(tokens).split() for tokens in found.tokens[i]]
            firsts = [next((w for w in text if w in readings.words), None) for text in texts]
            expected = sum(weight for weight, first in zip(weights, firsts, strict=True) if first == word) / sum(
                weights
            )
            assert share == pytest.approx(expected, abs=1e-6)


def test_no_ambiguous_utterances_no_batch(system, toy):
    plain = [cut for cut in PreparedData(toy.folder).cuts("test") if cut.supervisions[0].custom["kind"] == "ordinary"]

    class Ordinary(PreparedData):
        def cuts(self, part):
            return plain

    assert plain and ambiguous_batch(system, Ordinary(toy.folder), "test") is None


def test_the_figure_names_the_utterance_and_both_words(system, toy):
    followed = follow_readings(system, ambiguous_batch(system, PreparedData(toy.folder), "test"))
    drawn = readings_figure(followed, followed, ("one", "other"), followed[0].id)
    assert followed[0].id in drawn.caption
    labels = [text.get_text() for axis in drawn.figure.axes for text in axis.get_legend().get_texts()]
    assert labels == [f"{followed[0].words[0]} (said)", followed[0].words[1]] * 2
