"""What a client is still to be told: for each system the newest state, and what went before it only as far as needed.

However slowly a client reads, there is never more than one message for each system.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

# Moments of competing readings that are kept for a client that does not read: 20 s of 40 ms.
MOST_READINGS = 500


@dataclass(frozen=True)
class Refusal:
    """Why a stream is ended by the server.

    Attributes:
        reason: one word for programs
        sentence: for people
        code: of the WebSocket's closing
    """

    reason: str
    sentence: str
    code: int = 1008


def merged(waiting: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """One message that says what two in succession say."""
    both = newer | {name: waiting[name] + newer[name] for name in ("stable", "withdrawn")}
    if "readings" in newer:
        both["readings"] = (waiting["readings"] + newer["readings"])[-MOST_READINGS:]
    return both


class Outbox:
    """Messages on their way to one client."""

    def __init__(self, systems: int) -> None:
        self._running = set(range(systems))
        self._waiting: dict[int, dict[str, Any]] = {}
        self._refusal: Refusal | None = None
        self._gone = False
        self._news = asyncio.Event()

    def put(self, message: dict[str, Any]) -> None:
        """Add what is new of a system."""
        system = message["system"]
        before = self._waiting.get(system)
        self._waiting[system] = merged(before, message) if before else message
        self._news.set()

    def refuse(self, refusal: Refusal) -> None:
        """End with a refusal; the first one counts, and what else was to be said is dropped."""
        self._refusal = self._refusal or refusal
        self._news.set()

    def abandon(self) -> None:
        """The client is gone."""
        self._gone = True
        self._news.set()

    async def take(self) -> list[dict[str, Any]] | Refusal | None:
        """Wait for something to say; None once all is said, or nobody is there."""
        while True:
            if self._gone:
                return None
            if self._refusal:
                return self._refusal
            if self._waiting:
                messages = list(self._waiting.values())
                self._waiting.clear()
                self._running -= {message["system"] for message in messages if message["final"]}
                return messages
            if not self._running:
                return None
            self._news.clear()
            await self._news.wait()
