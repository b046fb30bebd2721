"""Invariant: what a client reads at its own pace comes to the same text as every message would, and never is more than
one message for each system kept for it.
"""

import asyncio
import random

from transducer_gn.serving.outbox import MOST_READINGS, Outbox, Refusal


def message(system: int, number: int, final: bool = False) -> dict:
    """What a system says after its chunk `number`."""
    return {
        "system": system,
        "seconds": number,
        "stable": [f"s{number}"],
        "open": [f"o{number}"],
        "withdrawn": [f"w{number}"],
        "readings": [number] * 100,
        "final": final,
    }


def test_a_slow_client_gets_the_same_text() -> None:
    async def run() -> None:
        randomness = random.Random(0)
        outbox, taken = Outbox(2), []
        for number in range(40):
            for system in (0, 1):
                outbox.put(message(system, number, final=number == 39))
            if randomness.random() < 0.3:
                taken += await outbox.take()
        taken += await outbox.take()
        assert await outbox.take() is None
        for system in (0, 1):
            own = [each for each in taken if each["system"] == system]
            assert len(own) < 40
            for name, letter in (("stable", "s"), ("withdrawn", "w")):
                assert [word for each in own for word in each[name]] == [f"{letter}{number}" for number in range(40)]
            assert own[-1]["open"] == ["o39"] and own[-1]["final"] and own[-1]["seconds"] == 39
            assert all(len(each["readings"]) <= MOST_READINGS for each in own)
            assert all(each["readings"][-1] == each["seconds"] for each in own)

    asyncio.run(run())


def test_only_one_message_waits_for_each_system() -> None:
    async def run() -> None:
        outbox = Outbox(1)
        for number in range(1000):
            outbox.put(message(0, number))
        assert len(await outbox.take()) == 1

    asyncio.run(run())


def test_a_refusal_comes_before_text_and_a_client_that_is_gone_hears_nothing() -> None:
    async def run() -> None:
        outbox = Outbox(1)
        outbox.put(message(0, 0))
        outbox.refuse(Refusal("first", "one"))
        outbox.refuse(Refusal("second", "two"))
        assert (await outbox.take()).reason == "first"
        outbox.abandon()
        assert await outbox.take() is None

    asyncio.run(run())
