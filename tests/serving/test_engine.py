"""Invariant: a stream's text and times are those of the same audio by itself, whatever other streams send, stop or do
wrong meanwhile; and nothing that the engine keeps grows with what was said.
"""

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from live_server import texts
from mind_changer import AT_FIRST, REVISED, STUBBORN, said
from small_systems import write_checkpoint

from transducer_gn.common.memory import held_bytes
from transducer_gn.recognition.stream import StreamingRecogniser
from transducer_gn.recognition.system import System, load
from transducer_gn.serving.engine import Engine
from transducer_gn.serving.frames import Frame, Kind

RATE = 16000


class Heard:
    """An engine, and what it has said to each stream."""

    def __init__(self, recognisers: list[StreamingRecogniser]) -> None:
        self.frames: dict[int, list[Frame]] = {}
        self.engine = Engine(recognisers, lambda frame: self.frames.setdefault(frame.stream, []).append(frame))

    def send(self, kind: Kind, stream: int, payload: bytes = b"") -> None:
        self.engine.handle(Frame(kind, stream, payload=payload))

    def work(self) -> None:
        while self.engine.busy:
            self.engine.round()

    def messages(self, stream: int) -> list[dict]:
        return [json.loads(frame.payload) for frame in self.frames[stream] if frame.kind is Kind.UPDATE]


@pytest.fixture(scope="module")
def random_system(tmp_path_factory: pytest.TempPathFactory) -> System:
    path = tmp_path_factory.mktemp("random") / "epoch-1.pt"
    write_checkpoint(path)
    return load(path)


def noise(seed: int, seconds: float) -> np.ndarray:
    """16-bit samples of something that the random system has much to say about."""
    time = np.arange(int(seconds * RATE)) / RATE
    tone = np.sin(2 * np.pi * (200 + 90 * seed) * time * (1 + 0.3 * np.sin(time)))
    return np.rint(12000 * tone).astype("<i2")


def test_texts_and_times_are_those_of_each_stream_alone(random_system: System) -> None:
    randomness = random.Random(1)
    heard = Heard([random_system.recogniser()])
    audio = {number: noise(number, 1 + number / 3) for number in range(1, 9)}
    sent = dict.fromkeys(audio, 0)
    for number in audio:
        heard.send(Kind.OPEN, number, b"1" if number % 2 else b"0")
    while any(sent[number] < len(audio[number]) for number in audio):
        number = randomness.choice([number for number in audio if sent[number] < len(audio[number])])
        size = randomness.choice([1, 160, 1280, 20000])
        heard.send(Kind.AUDIO, number, audio[number][sent[number] : sent[number] + size].tobytes())
        sent[number] += size
        if sent[number] >= len(audio[number]):
            heard.send(Kind.END, number)
        if randomness.random() < 0.4:
            heard.engine.round()
    heard.work()
    for number, samples in audio.items():
        alone = random_system.transcribe(samples)
        messages = heard.messages(number)
        words = [word for message in messages for word in message["stable"]]
        assert texts(messages)[-1] == alone.text != ""
        assert [word["start"] for word in words] == [round(word.start, 3) for word in alone.words]
        assert [message["final"] for message in messages] == [False] * (len(messages) - 1) + [True]
        assert messages[-1]["seconds"] == round(len(samples) / RATE, 3)
        assert ("readings" in messages[0]) == (number % 2 == 1)


def test_two_systems_hear_the_same_and_one_changes_its_mind(stubborn: Path, revising: Path) -> None:
    heard = Heard([load(stubborn).recogniser(), load(revising).recogniser()])
    heard.send(Kind.OPEN, 1, b"1")
    for piece in np.array_split(said(2), 50):
        heard.send(Kind.AUDIO, 1, piece.tobytes())
        heard.work()
    heard.send(Kind.END, 1)
    heard.work()
    messages = heard.messages(1)
    local, other = texts(messages, 0), texts(messages, 1)
    assert AT_FIRST in local and AT_FIRST in other
    assert local[-1] == f"{STUBBORN} {STUBBORN}"
    assert other[-1] == f"{REVISED} {REVISED}"
    gone = [(m["system"], w["text"], w["place"], w["instead"]) for m in messages for w in m["withdrawn"]]
    assert gone == [(1, "FAN", 0, "VAN"), (1, "FAN", 3, "VAN")]


def test_what_one_stream_does_wrong_is_said_to_it_alone(random_system: System) -> None:
    heard = Heard([random_system.recogniser()])
    samples = noise(3, 1.5)
    for number in (1, 2, 3):
        heard.send(Kind.OPEN, number)
    heard.send(Kind.END, 1)
    heard.send(Kind.AUDIO, 2, samples.tobytes())
    heard.send(Kind.AUDIO, 3, samples.tobytes())
    heard.engine.round()
    heard.send(Kind.CLOSE, 3)
    heard.send(Kind.AUDIO, 3, samples.tobytes())
    heard.send(Kind.AUDIO, 9, samples.tobytes())
    heard.send(Kind.END, 2)
    heard.work()
    assert [(frame.kind, frame.payload) for frame in heard.frames[1]] == [
        (Kind.FAILED, b"the stream has ended without any audio")
    ]
    assert texts(heard.messages(2))[-1] == random_system.transcribe(samples).text
    assert len(heard.frames[3]) == 1 and 9 not in heard.frames


def test_a_round_takes_one_chunk_of_each_however_much_one_has_sent(random_system: System) -> None:
    heard = Heard([random_system.recogniser()])
    for number, seconds in ((1, 5.0), (2, 0.3)):
        heard.send(Kind.OPEN, number)
        heard.send(Kind.AUDIO, number, noise(number, seconds).tobytes())
    heard.engine.round()
    assert len(heard.frames[1]) == len(heard.frames[2]) == 1


def test_delays_count_from_the_audio_that_completed_each_chunk(
    random_system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard([random_system.recogniser()])
    heard.send(Kind.OPEN, 1)
    seconds = heard.engine._tracks[1][0].recogniser.chunk_seconds
    samples = noise(1, 3.5 * seconds)
    # Pieces of a quarter of a chunk that come while nothing is recognised, each ten seconds after the one before.
    size = int(seconds * RATE / 4)
    pieces = [samples[start : start + size] for start in range(0, len(samples), size)]
    for number, piece in enumerate(pieces):
        heard.engine.handle(Frame(Kind.AUDIO, 1, 10.0 * number, piece.tobytes()))
    heard.engine.handle(Frame(Kind.END, 1, 500.0))
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    heard.work()
    assert not heard.engine.busy
    framing = random_system.model.encoder.framing
    chunks = [framing.samples_heard((n + 1) * round(seconds / framing.frame_shift)) for n in range(3)]
    came = [10.0 * (-(-needed // size) - 1) for needed in chunks]
    assert came == sorted(set(came))
    assert [message["delay"] for message in heard.messages(1)] == [1000.0 - moment for moment in [*came, 500.0]]


def test_what_is_sent_ahead_or_in_small_pieces_is_not_worked_on_before_its_turn(
    random_system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard([random_system.recogniser()])
    heard.send(Kind.OPEN, 1)
    stream = heard.engine._tracks[1][0].stream
    taken: list[int] = []
    add = stream.add
    monkeypatch.setattr(stream, "add", lambda samples: (taken.append(len(samples)), add(samples)))
    samples = noise(2, 4.0)
    for start in range(0, len(samples), 160):
        heard.send(Kind.AUDIO, 1, samples[start : start + 160].tobytes())
    assert taken == []
    heard.engine.round()
    assert len(taken) == 1
    heard.send(Kind.END, 1)
    heard.work()
    assert texts(heard.messages(1))[-1] == random_system.transcribe(samples).text


def test_nothing_is_tried_again_before_more_audio_has_come(random_system: System) -> None:
    recogniser = random_system.recogniser()
    heard = Heard([recogniser])
    heard.send(Kind.OPEN, 1)
    # Features need a few samples more than those that are counted.
    needed = recogniser.encoder.framing.samples_heard(recogniser.encoder.size)
    samples = noise(4, 1.0)
    heard.send(Kind.AUDIO, 1, samples[:needed].tobytes())
    assert heard.engine.busy
    heard.engine.round()
    assert not heard.engine.busy and 1 not in heard.frames
    heard.send(Kind.AUDIO, 1, samples[needed : needed + 160].tobytes())
    heard.work()
    assert len(heard.frames[1]) == 1


def test_what_is_kept_does_not_grow(random_system: System) -> None:
    heard = Heard([random_system.recogniser()])
    heard.send(Kind.OPEN, 1, b"1")
    minute = noise(5, 10.0)
    sizes = []
    for _ in range(6):
        for piece in np.array_split(minute, 20):
            heard.send(Kind.AUDIO, 1, piece.tobytes())
            heard.work()
        words = sum(len(message["stable"]) for message in heard.messages(1))
        track = heard.engine._tracks[1][0]
        kept = [value for value in vars(track.stream.text._transcript).values() if isinstance(value, list | str)]
        sizes.append((held_bytes(track), sum(map(len, kept)), words))
    assert sizes[-1][2] > 3 * sizes[1][2] > 0
    assert max(size for size, _, _ in sizes[2:]) <= 1.2 * max(size for size, _, _ in sizes[:2])
    assert max(kept for _, kept, _ in sizes[2:]) <= 2 * max(kept for _, kept, _ in sizes[:2])
