"""Invariant: an utterance is left out of training for one reason, which is counted, and of nothing else for any."""

from dataclasses import replace

import pytest
from lhotse import CutSet, MonoCut, SupervisionSegment

from transducer_gn.config import BatchConfig
from transducer_gn.data import epoch_plan
from transducer_gn.data.filtering import Usable, usable_cuts

SETTINGS = BatchConfig(min_duration=1.0, max_duration_of_utterance=5.0)


class OneTokenPerLetter:
    """A token model that needs no training."""

    fingerprint = "letters"

    def encode(self, text):
        return list(text)


def cut(name, seconds, tokens):
    supervision = SupervisionSegment(name, name, 0.0, seconds, text="A" * tokens)
    return MonoCut(name, 0.0, seconds, 0, [supervision])


CUTS = [cut("short", 0.99, 1), cut("a", 1.0, 1), cut("b", 5.0, 24), cut("long", 5.01, 1), cut("c", 2.0, 49)]


# 2 seconds are 200 feature frames and 49 encoder frames.
@pytest.mark.parametrize(
    ("seconds", "tokens", "density", "fault"),
    [
        (0.99, 1, 1, "too_short"),
        (1.0, 1, 1, None),
        (5.0, 1, 1, None),
        (5.01, 1, 1, "too_long"),
        (2.0, 49, 1, None),
        (2.0, 50, 1, "too_many_tokens"),
        (2.0, 98, 2, None),
        (2.0, 99, 2, "too_many_tokens"),
    ],
)
def test_limits_belong_to_what_is_kept(seconds, tokens, density, fault):
    settings = replace(SETTINGS, max_token_density=density)
    assert Usable(OneTokenPerLetter(), settings).fault(cut("x", seconds, tokens)) == fault


def ids_of(utterances):
    return [utterances.cut(position).id for position in range(len(utterances.durations))]


@pytest.mark.parametrize("small", [2, 100])
def test_only_training_leaves_out_whether_cuts_stay_in_memory_or_not(small, monkeypatch):
    monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", small)
    cuts = CutSet.from_cuts([*CUTS, cut("dense", 2.0, 50)])
    kept, report = usable_cuts(cuts, Usable(OneTokenPerLetter(), SETTINGS), training=True)
    assert ids_of(kept) == ["a", "b", "c"] and list(report.durations) == [1.0, 5.0, 2.0] == list(kept.durations)
    assert (report.kept, report.too_short, report.too_long, report.too_many_tokens) == (3, 1, 1, 1)
    everything, evaluation = usable_cuts(cuts, Usable(OneTokenPerLetter(), SETTINGS), training=False)
    assert ids_of(everything) == [c.id for c in cuts] and evaluation.kept == 6


@pytest.mark.parametrize("small", [0, 100])
def test_a_fault_is_found_one_by_one_and_all_at_once(small, monkeypatch):
    monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", small)
    cuts = [
        cut(f"{seconds} {tokens}", seconds, tokens) for seconds in (0.99, 1.0, 2.0, 5.01) for tokens in (1, 49, 130)
    ]
    usable = Usable(OneTokenPerLetter(), SETTINGS)
    expected = [one.id for one in cuts if usable.fault(one) is None]
    assert (
        ids_of(usable_cuts(CutSet.from_cuts(cuts), Usable(OneTokenPerLetter(), SETTINGS), training=True)[0]) == expected
    )


@pytest.mark.parametrize("small", [0, 100])
def test_the_fingerprint_is_that_of_utterances_durations_and_order(small, monkeypatch):
    monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", small)

    def fingerprint(*cuts):
        return usable_cuts(CutSet.from_cuts(cuts), Usable(OneTokenPerLetter(), SETTINGS), training=True)[1].fingerprint

    one, other = cut("a", 2.0, 1), cut("b", 3.0, 1)
    # An index knows what it left out, which makes no difference to batches; to name one more reason is no harm.
    assert small == 0 or fingerprint(one, other) == fingerprint(one, cut("short", 0.5, 1), other)
    assert (
        len({fingerprint(one, other), fingerprint(other, one), fingerprint(cut("a", 2.5, 1), other), fingerprint(one)})
        == 4
    )
