"""Invariant: the shares of competing readings are those of the beam's weight, at the first word on which its hypotheses
differ; they are seen after every frame, and looking changes nothing.
"""

import math
from itertools import pairwise
from pathlib import Path

import pytest
from mind_changer import REVISED, said

from transducer_gn.recognition.system import load
from transducer_gn.serving.readings import ReadingsWatch, disputed


def log(*weights: float) -> list[float]:
    return [math.log(weight) for weight in weights]


@pytest.mark.parametrize(
    ("texts", "weights", "expected"),
    [
        ([["A"]], [1], None),
        ([["A", "B"], ["A", "B"]], [3, 1], None),
        ([["FAN"], ["VAN"]], [3, 1], (0, {"FAN": 0.75, "VAN": 0.25})),
        ([["A", "FAN", "X"], ["A", "VAN"], ["A", "FAN"]], [2, 1, 1], (1, {"FAN": 0.75, "VAN": 0.25})),
        ([["A"], ["A", "B"]], [1, 1], (1, {"": 0.5, "B": 0.5})),
        ([["A"], ["B"], ["C"]], [1000, 1000, 1], (0, {"A": 1000 / 2001, "B": 1000 / 2001})),
    ],
)
def test_shares_where_texts_first_differ(
    texts: list[list[str]], weights: list[float], expected: tuple[int, dict[str, float]] | None
) -> None:
    found = disputed(texts, log(*weights))
    if expected is None:
        assert found is None
    else:
        assert found is not None and found[0] == expected[0]
        assert found[1] == pytest.approx(expected[1])


@pytest.mark.parametrize("together", [False, True])
def test_every_frame_is_seen_and_the_readings_turn_round(revising: Path, together: bool) -> None:
    recogniser = load(revising).recogniser()
    watched, plain = recogniser.open(), recogniser.open()
    watch = ReadingsWatch(watched.text, recogniser.encoder.framing)
    for stream in (watched, plain):
        stream.add(said())
        stream.end()
    for streams in [[watched, plain]] if together else [[watched], [plain]]:
        recogniser.advance(streams)
    assert watched.partial() == plain.partial()
    assert plain.partial().text == REVISED
    seen = [dispute for dispute in watch.take() if dispute.place == 0 and {"FAN", "VAN"} <= dispute.shares.keys()]
    steps = {round(b.seconds - a.seconds, 6) for a, b in pairwise(seen)}
    assert steps == {0.04}
    leads = [dispute.shares["FAN"] > dispute.shares["VAN"] for dispute in seen]
    assert leads[0] and not leads[-1] and sorted(leads, reverse=True) == leads
    # 0.6 and 0.4, as the table of the joiner has it.
    assert seen[5].shares["FAN"] == pytest.approx(0.6, abs=0.05)
    assert watch.take() == []
