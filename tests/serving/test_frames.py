"""Invariant: frames come out of the reader as they were encoded, however their bytes are cut."""

import random

from transducer_gn.serving.frames import Frame, FrameReader, Kind


def test_frames_come_back_whole_however_they_are_cut() -> None:
    randomness = random.Random(0)
    frames = [
        Frame(kind, number, number / 3, randomness.randbytes(randomness.randrange(40)))
        for number, kind in enumerate([*Kind] * 5)
    ]
    data = b"".join(frame.encode() for frame in frames)
    for longest in (1, 7, 60, len(data)):
        reader, found, start = FrameReader(), [], 0
        while start < len(data):
            end = start + randomness.randint(1, longest)
            found += reader.feed(data[start:end])
            start = end
        assert found == frames


def test_no_frame_comes_twice_to_those_who_look_at_the_first_alone() -> None:
    frames = [Frame(Kind.READY, payload=b"[]"), Frame(Kind.UPDATE, 1, 2.0, b"{}")]
    reader = FrameReader()
    assert next(iter(reader.feed(frames[0].encode()))) == frames[0]
    assert reader.feed(frames[1].encode()) == frames[1:]
