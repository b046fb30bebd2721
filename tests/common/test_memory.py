"""Invariant: memory counts every storage that an object keeps alive, once, however deep; modules do not count."""

from dataclasses import dataclass, field

import torch

from transducer_gn.common.memory import held_bytes


class Slotted:
    __slots__ = ("inside", "unset")

    def __init__(self) -> None:
        self.inside = torch.zeros(5)


@dataclass
class Holder:
    view: torch.Tensor
    model: torch.nn.Module
    parts: dict[str, list] = field(default_factory=dict)
    itself: object = None


def test_storages_are_counted_once_and_whole():
    whole = torch.zeros(100)
    holder = Holder(whole[:3], torch.nn.Linear(50, 50))
    assert held_bytes(holder) == 400
    holder.parts = {"a": [whole[50:], (torch.zeros(10, dtype=torch.double),)], "b": [Slotted()]}
    holder.itself = holder
    assert held_bytes(holder) == 400 + 80 + 20
    assert held_bytes("nothing") == 0
