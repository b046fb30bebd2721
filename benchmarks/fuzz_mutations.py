"""Changes of inputs: bits, numbers and blocks of bytes, and values of JSON."""

import json
import random
import re
from collections.abc import Sequence
from typing import Any

NUMBERS = [0, 1, -1, 2, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 10**15, 10**30]
DEEP = 3000
VALUES: list[Any] = [
    *(None, True, False, *NUMBERS, 10**400, 0.5, -0.5, 1e308, -1e308, float("nan"), float("inf"), -float("inf")),
    *("", "a", " ", "0", "1e9", "..", "../..", "/", "nan", "null", "{x}", "%s", "\0", "\ud800", "\u2581", "A" * 3000),
    *([], {}, [[]], [None], {"": None}, {"id": 1}, [1, 2, 3], [0.5] * 50, {"a": {"a": {"a": []}}}),
]
BYTES = [b"\0", b"\xff", b"\n", b"\r\n", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"-", b"e9"]
NUMBER = re.compile(rb"-?\d+(\.\d+)?")


class Mutator:
    """Draws changed inputs.

    Args:
        rng: decides
        is_json: whether inputs are JSON, or lines of it
        words: pieces of text to put in
    """

    def __init__(self, rng: random.Random, is_json: bool, words: Sequence[bytes]) -> None:
        self._rng = rng
        self._is_json = is_json
        self._words = [*words, *BYTES]

    def changed(self, content: bytes, other: bytes) -> bytes:
        """An input like `content`, perhaps with a part of another."""
        for _ in range(min(6, 1 + int(self._rng.expovariate(0.8)))):
            if self._is_json and self._rng.random() < 0.7:
                content = self._changed_lines(content)
            else:
                content = self._changed_bytes(content, other)
        return content

    def _changed_lines(self, content: bytes) -> bytes:
        """With a value changed, in one of the lines where the whole is no JSON."""
        try:
            return dump(self._changed_value(json.loads(content)))
        except (ValueError, RecursionError):
            pass
        lines = content.split(b"\n")
        chosen = self._rng.randrange(len(lines))
        try:
            lines[chosen] = dump(self._changed_value(json.loads(lines[chosen])))
        except (ValueError, RecursionError):
            lines[chosen] = dump(self._rng.choice(VALUES))
        if self._rng.random() < 0.1:
            lines.insert(chosen, lines[chosen])
        return b"\n".join(lines)

    def _changed_value(self, value: Any) -> Any:
        """A value with something in it changed, added or left out; the deeper, the likelier."""
        rng = self._rng
        if isinstance(value, dict | list) and value and rng.random() < 0.9:
            key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
            what = rng.random()
            if what < 0.1:
                del value[key]
            elif what < 0.2 and isinstance(value, dict):
                value[rng.choice([*map(str, value), "", "x", "custom", "id"])] = value[key]
            elif what < 0.2:
                value.append(value[key])
            else:
                value[key] = self._changed_value(value[key])
            return value
        if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
            return rng.choice([value + 1, value - 1, -value, value * 1000, value / 3 if abs(value) < 1e300 else 0])
        if rng.random() < 0.01:
            return self._deep()
        return rng.choice(VALUES)

    def _deep(self) -> Any:
        """Something nested further than a reader may go down."""
        value: Any = []
        for _ in range(self._rng.choice([50, 500])):
            value = [value]
        return value

    def _changed_bytes(self, content: bytes, other: bytes) -> bytes:
        rng, size = self._rng, len(content)
        start = rng.randrange(size + 1)
        end = min(size, start + rng.choice([1, 1, 2, 4, 8, 32, 256]))
        kind = rng.randrange(11)
        if kind == 0 and size:
            place = rng.randrange(size)
            middle = bytes([content[place] ^ (1 << rng.randrange(8))])
            return content[:place] + middle + content[place + 1 :]
        if kind == 1:
            return content[:start] + rng.randbytes(end - start) + content[end:]
        if kind == 2:
            return content[:start] + content[end:]
        if kind == 3:
            return content[:end] + content[start:end] * rng.choice([1, 1, 2, 100]) + content[end:]
        if kind == 4:
            return content[:start] + rng.choice(self._words) + content[start:]
        if kind == 5:
            return content[:start] + rng.choice(self._words) + content[end:]
        if kind == 6:
            width = rng.choice([1, 2, 4, 8])
            number = rng.choice(NUMBERS) % (1 << 8 * width)
            return content[:start] + number.to_bytes(width, rng.choice(["little", "big"])) + content[start + width :]
        if kind == 7:
            return self._changed_number(content)
        if kind == 8:
            at = rng.randrange(len(other) + 1)
            return content[:start] + other[at : at + rng.choice([4, 32, 256, 4096])] + content[end:]
        if kind == 9 and rng.random() < 0.02:
            return content[:start] + rng.choice([b"[", b"{", b"(", b'{"a":']) * DEEP + content[start:]
        return content[:start] if kind == 10 and rng.random() < 0.3 else content

    def _changed_number(self, content: bytes) -> bytes:
        """With a number that is written out replaced by another."""
        found = list(NUMBER.finditer(content[: 1 << 14]))
        if not found:
            return content
        place = self._rng.choice(found)
        text = self._rng.choice([str(self._rng.choice(NUMBERS)), "1e400", "-0", "0x10", ".5", "9" * 5000, "nan", "1_0"])
        return content[: place.start()] + text.encode() + content[place.end() :]


def dump(value: Any) -> bytes:
    """JSON, with what JSON does not have as Python writes it."""
    return json.dumps(value).encode()
