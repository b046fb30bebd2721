"""What is in a prepared folder: its parts in numbers, and utterances that are worth a look."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from lhotse.cut import Cut

from transducer_gn.data.labels import DEFAULT_GROUP, group_of, unit_of
from transducer_gn.data.layout import ROLES
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.tokenizer import UNKNOWN, Tokenizer

QUANTILES = (0.05, 0.5, 0.95, 1.0)


@dataclass(frozen=True)
class PartDescription:
    """One part in numbers; quantiles are the 5th, 50th, 95th percentile and the largest."""

    name: str
    role: str
    utterances: int
    hours: float
    speakers: int
    durations: tuple[float, ...]
    tokens: tuple[float, ...]
    words: int
    words_unseen: int
    tokens_unknown: int
    groups: dict[str, int]


def describe_part(
    data: PreparedData, part: str, role: str, tokenizer: Tokenizer, vocabulary: set[str]
) -> PartDescription:
    """Measure one part; the words of a training part are added to `vocabulary`, others' are looked up in it."""
    durations: list[float] = []
    tokens: list[int] = []
    groups: Counter[str] = Counter()
    speakers: set[str] = set()
    words = unseen = unknown = 0
    for cut in data.cuts(part):
        supervision = cut.supervisions[0]
        spoken = supervision.text.split()
        if role == "train":
            vocabulary.update(spoken)
        ids = tokenizer.encode(supervision.text)
        durations.append(cut.duration)
        tokens.append(len(ids))
        groups[group_of(supervision.custom or {})] += 1
        speakers.add(supervision.speaker)
        words += len(spoken)
        unseen += sum(word not in vocabulary for word in spoken)
        unknown += ids.count(UNKNOWN)
    return PartDescription(
        name=part,
        role=role,
        utterances=len(durations),
        hours=sum(durations) / 3600,
        speakers=len(speakers),
        durations=tuple(float(value) for value in np.quantile(durations, QUANTILES)),
        tokens=tuple(float(value) for value in np.quantile(tokens, QUANTILES)),
        words=words,
        words_unseen=unseen,
        tokens_unknown=unknown,
        groups=dict(sorted(groups.items())),
    )


def describe_parts(data: PreparedData, tokenizer: Tokenizer) -> list[PartDescription]:
    """Measure all parts, training parts first."""
    vocabulary: set[str] = set()
    return [describe_part(data, part, role, tokenizer, vocabulary) for role in ROLES for part in data.parts(role)]


def choose_examples(cuts: Sequence[Cut], count: int) -> list[Cut]:
    """At most `count` utterances of a part.

    The first special group, if there is one, is shown by all utterances of its first unit; other special groups by
    their first utterance; the default group by as many as there is room for.
    """
    group = {cut.id: group_of(cut.supervisions[0].custom or {}) for cut in cuts}
    unit = {cut.id: unit_of(cut.id, cut.supervisions[0].custom or {}) for cut in cuts}
    chosen: list[Cut] = []
    for name in sorted(set(group.values()) - {DEFAULT_GROUP}):
        first = next(cut for cut in cuts if group[cut.id] == name)
        chosen += [first] if chosen else [first, *(c for c in cuts if c is not first and unit[c.id] == unit[first.id])]
    others = (cut for cut in cuts if group[cut.id] == DEFAULT_GROUP)
    return [*chosen, *islice(others, max(0, count - len(chosen)))][:count]
