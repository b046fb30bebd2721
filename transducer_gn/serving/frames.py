"""What the two processes of the server say to each other, as bytes: a kind, a stream, a number, a payload."""

import struct
from dataclasses import dataclass
from enum import IntEnum

HEADER = struct.Struct(">BIdI")


class Kind(IntEnum):
    """What a frame is.

    The recogniser is sent OPEN (payload: 1 to watch readings, else 0), AUDIO (number: when it came; payload: samples),
    END and CLOSE. It sends READY (payload: JSON about its systems) once, then UPDATE (number: seconds of audio that
    are used up; payload: JSON) and FAILED (payload: a sentence; about the recogniser itself where the stream is 0).
    """

    OPEN = 1
    AUDIO = 2
    END = 3
    CLOSE = 4
    READY = 5
    UPDATE = 6
    FAILED = 7


@dataclass(frozen=True, slots=True)
class Frame:
    """One message between the processes.

    Attributes:
        kind: what it is
        stream: number of the stream it is about, from 1
        number: seconds of something, by kind
        payload: the rest, by kind
    """

    kind: Kind
    stream: int = 0
    number: float = 0.0
    payload: bytes = b""

    def encode(self) -> bytes:
        """As bytes."""
        return HEADER.pack(self.kind, self.stream, self.number, len(self.payload)) + self.payload


class FrameReader:
    """Takes bytes as they come and gives the frames that are complete."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Frames that are complete with `data`."""
        self._rest += data
        frames: list[Frame] = []
        start = 0
        while len(self._rest) - start >= HEADER.size:
            kind, stream, number, size = HEADER.unpack_from(self._rest, start)
            end = start + HEADER.size + size
            if len(self._rest) < end:
                break
            frames.append(Frame(Kind(kind), stream, number, bytes(self._rest[start + HEADER.size : end])))
            start = end
        del self._rest[:start]
        return frames
