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
