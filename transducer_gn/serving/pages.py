"""The page, its files, and the sentences that it offers: what is answered to requests that open no stream."""

import io
import json
import wave
from dataclasses import dataclass
from http import HTTPStatus
from importlib.resources import files

from websockets.datastructures import Headers
from websockets.http11 import Response

from transducer_gn.common.units import SAMPLING_RATE

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# The page loads nothing from elsewhere, runs nothing that is not a file of its own, and is framed by nobody.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Sentence:
    """A recording that the page offers.

    Attributes:
        name: what it is listed as
        text: what was said
        samples: 16-bit, little-endian, mono
        spans: stretches of time in seconds to point out, by what they are
    """

    name: str
    text: str
    samples: bytes
    spans: dict[str, tuple[float, float]]

    def wav(self) -> bytes:
        """As a WAV file."""
        target = io.BytesIO()
        with wave.open(target, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(SAMPLING_RATE)
            file.writeframes(self.samples)
        return target.getvalue()


def answer(status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> Response:
    """A whole answer, after which the connection is closed."""
    headers = Headers()
    own = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close", "Cache-Control": "no-cache"}
    for name, value in (own | SECURITY).items():
        headers[name] = value
    return Response(status.value, status.phrase, headers, body)


class Pages:
    """Everything that can be asked for, made once."""

    def __init__(self, sentences: list[Sentence]) -> None:
        self._made: dict[str, tuple[bytes, str]] = {}
        for file in files("transducer_gn.serving").joinpath("static").iterdir():
            kind = TYPES.get(f".{file.name.rpartition('.')[2]}")
            if kind is not None:
                path = "/" if file.name == "index.html" else f"/{file.name}"
                self._made[path] = (file.read_bytes(), kind)
        listed = []
        for number, sentence in enumerate(sentences):
            path = f"/sentences/{number}.wav"
            self._made[path] = (sentence.wav(), "audio/wav")
            listed.append({"name": sentence.name, "text": sentence.text, "spans": sentence.spans, "audio": path})
        self.add_json("/sentences.json", listed)

    def add_json(self, path: str, content: object) -> None:
        """Answer requests for a path with JSON."""
        self._made[path] = (json.dumps(content).encode(), "application/json")

    def get(self, path: str) -> Response:
        """The answer to a request for a path."""
        if path in self._made:
            return answer(HTTPStatus.OK, *self._made[path])
        return answer(HTTPStatus.NOT_FOUND, b"there is no such page; streams are at /stream\n")
