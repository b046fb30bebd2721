"""Invariant: every source is recognised or said to have failed, at most so many at a time; what is shown of each is its
latest text, once, and its final text at the end.
"""

import io
import json

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.recognition.live import CLEAR_LINE, Display, Source, Totals, recognise_sources
from transducer_gn.recognition.transcript import Revisions, Transcript


class Terminal(io.StringIO):
    """An output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Stream:
    """Hears pieces, which are words here, and knows what it has heard once its recogniser has advanced it."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.known: list[str] = []
        self.finished = self.ended = False
        self.revisions = Revisions()

    @property
    def seconds(self) -> float:
        return 0.5 * len(self.known)

    def add(self, piece: str) -> None:
        if piece == "bad":
            raise UserError("source: this is no word")
        self.heard.append(piece)

    def end(self) -> None:
        self.ended = True

    def partial(self) -> Transcript:
        if self.known[-1:] == ["mute"]:
            raise UserError("nothing was understood")
        return transcript(" ".join(self.known))


class Recogniser:
    """Counts the streams that are open together."""

    def __init__(self) -> None:
        self.together: list[int] = []

    def open(self) -> Stream:
        return Stream()

    def advance(self, streams) -> None:
        streams = list(streams)
        self.together.append(len(streams))
        for stream in streams:
            stream.known, stream.finished = list(stream.heard), stream.ended


def transcript(text: str, stable: str = "") -> Transcript:
    return Transcript(text=text, stable=stable, words=[])


def recognise(texts: dict[str, str], concurrent: int):
    """Lines of JSON by source, the totals, and how many were open at a time."""
    output, recogniser = io.StringIO(), Recogniser()
    sources = (Source(name, iter(text.split())) for name, text in texts.items())
    totals = recognise_sources(recogniser, sources, concurrent, Display(as_json=True, output=output))
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    return {name: [line for line in lines if line["name"] == name] for name in texts}, totals, recogniser.together


@pytest.mark.parametrize("concurrent", [1, 2, 3, 9])
def test_all_sources_are_recognised_so_many_at_a_time(concurrent):
    texts = {"a": "one two three", "b": "four", "c": "five six", "d": "seven eight nine ten", "e": "eleven"}
    lines, totals, together = recognise(texts, concurrent)
    for name, text in texts.items():
        words = text.split()
        assert [line["text"] for line in lines[name][:-1]] == [" ".join(words[: n + 1]) for n in range(len(words))]
        assert [line["final"] for line in lines[name]] == [False] * len(words) + [True]
        assert lines[name][-1]["text"] == text and lines[name][-1]["seconds"] == 0.5 * len(words)
        assert "revisions" in lines[name][-1]
    most = min(concurrent, len(texts))
    assert totals.most_concurrent == max(together) == most
    # Each turn takes a piece of every open source, or its end.
    assert sum(together) == sum(len(text.split()) + 1 for text in texts.values())
    assert (totals.streams, totals.failed, totals.audio_seconds) == (5, 0, 0.5 * 11)


def test_sources_that_fail_are_said_to_and_the_others_go_on():
    lines, totals, _ = recognise({"a": "one bad two", "b": "three mute four", "c": "five six"}, 2)
    assert [line.get("text", line.get("error")) for line in lines["a"]] == ["one", "source: this is no word"]
    assert [line.get("text", line.get("error")) for line in lines["b"]] == ["three", "nothing was understood"]
    assert lines["c"][-1]["final"] and lines["c"][-1]["text"] == "five six"
    assert (totals.streams, totals.failed, totals.audio_seconds) == (3, 2, 1.0)


def shown(display: Display, *calls) -> list[str]:
    """What each call adds to the output."""
    added = []
    for call in calls:
        before = len(display.output.getvalue())
        call(display)
        added.append(display.output.getvalue()[before:])
    return added


@pytest.mark.parametrize(
    "last",
    [
        lambda display: display.show_final("a", transcript("one two"), 1.0, Revisions()),
        lambda display: display.show_failure("a", "no more"),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_text_is_shown_when_it_changes_and_anew_after_the_end(as_json, last):
    def show(display):
        display.show("a", transcript("one two", "one"), 1.2345)

    first, again, end, anew = shown(Display(as_json, Terminal()), show, show, last, show)
    assert first == anew != "" and again == "" and end.endswith("\n")
    if as_json:
        line = json.loads(first)
        assert (line["text"], line["seconds"], line["final"]) == ("one two", 1.234, False)
    else:
        assert first == f"{CLEAR_LINE}a: one| two" and end.startswith(f"{CLEAR_LINE}a: ")


def test_what_is_no_terminal_gets_final_texts_alone():
    display = Display(as_json=False, output=io.StringIO())
    display.show("a", transcript("one"), 1.0)
    display.show_final("a", transcript("one two"), 1.0, Revisions())
    display.show_failure("b", "there is no such file")
    assert display.output.getvalue() == "a: one two\nb: there is no such file\n"


class Pipe(io.TextIOWrapper):
    """An output that keeps back what is written until it is told not to, as a pipe does."""

    def arrived(self) -> str:
        return self.buffer.getvalue().decode()


@pytest.mark.parametrize(
    "call",
    [
        lambda display: display.show("a", transcript("one two"), 1.0),
        lambda display: display.show_final("a", transcript("one two"), 1.0, Revisions()),
        lambda display: display.show_failure("a", "two bad words"),
    ],
)
def test_whoever_reads_along_gets_each_text_at_once(call):
    output = Pipe(io.BytesIO())
    call(Display(as_json=True, output=output))
    assert "two" in output.arrived() and output.arrived().endswith("\n")


def test_the_real_time_factor_is_work_per_audio():
    assert Totals(audio_seconds=8.0, wall_seconds=2.0).real_time_factor == 0.25
    assert "real-time factor 0.250" in Totals(audio_seconds=8.0, wall_seconds=2.0).sentence()
    assert Totals(wall_seconds=2.0).real_time_factor == 0.0
