"""Invariant: what is shown is a beginning of the best hypothesis; stable text is never taken back; a held word has been
there for as long as was asked; streams show what a history says; and the final text is always shown.
"""

from itertools import pairwise

import pytest
from small_exports import exported, small_system, tones

import transducer_gn
from transducer_gn.common.errors import UserError
from transducer_gn.config import SHOW_ALL, DisplayConfig, RecognitionConfig
from transducer_gn.recognition.display_policy import (
    Presenter,
    Shown,
    common_beginning,
    cut_short,
    present,
    stable_words,
)
from transducer_gn.recognition.transcript import Transcript, Word

STABLE = DisplayConfig(show="stable")


def transcript(text: str, stable: str) -> Transcript:
    return Transcript(text, stable, [Word(word, 0.0, 1.0) for word in text.split()])


def texts(history: list[Shown]) -> list[str]:
    return [" ".join(moment.words) for moment in history]


HISTORY = [
    Shown(1.0, ["N"], 0),
    Shown(2.0, ["N", "A"], 0),
    Shown(3.0, ["N", "A", "B"], 1),
    Shown(4.0, ["N", "X", "B"], 1),
    Shown(5.0, ["N", "X", "B", "C"], 2),
]


@pytest.mark.parametrize(
    ("display", "expected"),
    [
        (SHOW_ALL, ["N", "N A", "N A B", "N X B", "N X B C"]),
        (STABLE, ["", "", "N", "N", "N X B C"]),
        (DisplayConfig(hold_ms=1000), ["", "N", "N A", "N", "N X B C"]),
        (DisplayConfig(hold_ms=500), ["", "N", "N A", "N", "N X B C"]),
        # Settled words need not be held.
        (DisplayConfig(hold_ms=3000), ["", "", "N", "N", "N X B C"]),
    ],
)
def test_by_hand(display: DisplayConfig, expected: list[str]) -> None:
    assert texts(present(HISTORY, display)) == expected


def test_the_last_stable_word_may_grow_and_does_not_count() -> None:
    assert stable_words(transcript("MAIL ORDER TEA", "MAIL OR"), final=False) == 1
    assert stable_words(transcript("MAIL ORDER TEA", "MAIL ORDER"), final=False) == 1
    assert stable_words(transcript("MAIL", ""), final=False) == 0
    assert stable_words(transcript("MAIL ORDER", "MAIL ORDER"), final=True) == 2


def test_what_is_cut_short_has_no_more_stable_text_than_text() -> None:
    shown = cut_short(transcript("MAIL ORDER TEA", "MAIL ORD"), 1)
    assert (shown.text, shown.stable, len(shown.words)) == ("MAIL", "MAIL", 1)
    shown = cut_short(transcript("MAIL ORDER TEA", "MAIL ORD"), 2)
    assert (shown.text, shown.stable) == ("MAIL ORDER", "MAIL ORD")


def test_common_beginning() -> None:
    assert common_beginning([], ["A"]) == 0
    assert common_beginning(["A", "B"], ["A", "B", "C"]) == 2
    assert common_beginning(["A", "B", "C"], ["A", "X", "C"]) == 1


def test_times_that_are_sums_of_steps_are_exact_enough() -> None:
    presenter = Presenter(DisplayConfig(hold_ms=640))
    seconds = [0.01 * (64 * number + 5) for number in range(1, 60)]
    assert [presenter.update(["A"], 0, time) for time in seconds] == [0] + [1] * 58


@pytest.mark.parametrize("display", [STABLE, DisplayConfig(hold_ms=320), DisplayConfig(hold_ms=1000)])
def test_streams_of_torch_and_of_exports_show_what_the_history_says(tmp_path, display: DisplayConfig) -> None:
    system, settings = small_system(tmp_path), RecognitionConfig(beam=8)
    runtime = transducer_gn.load_exported(exported(system, tmp_path / "out"))
    audio = tones(4, 90000)
    everything, shown = system.stream(settings), [each.stream(settings, display) for each in (system, runtime)]
    history, found = [], []
    # The encoder's chunks are of four frames; a piece completes at most one.
    for start in range(0, len(audio), 2560):
        best = everything.accept(audio[start : start + 2560])
        seconds = everything._stream.text.beam.frames * 0.04
        if not history or seconds > history[-1].seconds:
            history.append(Shown(seconds, best.text.split(), stable_words(best, False)))
            found.append([stream.accept(audio[start : start + 2560]).text for stream in shown])
        else:
            assert [stream.accept(audio[start : start + 2560]).text for stream in shown] == found[-1]
    finals = {stream.finish().text for stream in (everything, *shown)}
    assert len(finals) == 1
    # The last moment of a history is final; these are all before the end.
    assert found == [[text, text] for text in texts(present([*history, history[-1]], display)[:-1])]
    changed = sum(not after[0].startswith(before[0]) for before, after in pairwise(found))
    assert len({text for text, _ in found}) > 5 and (display != STABLE or changed == 0)


def test_contradictions_are_refused() -> None:
    for changes, sentence in [
        ({"show": "some"}, 'must be "all" or "stable"'),
        ({"hold_ms": -1}, "--hold-ms: must be 0 or more"),
        ({"show": "stable", "hold_ms": 3}, "need not be held"),
    ]:
        with pytest.raises(UserError, match=sentence):
            DisplayConfig(**changes)
