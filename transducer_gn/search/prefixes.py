"""The prefixes of token sequences that a search works with, and what the predictor said about them.

Prefixes are the nodes of a tree: two hypotheses have the same tokens exactly if they have the same node. What the
predictor said takes much more room than a node, so it is kept in rows of a few tensors that prefixes borrow. Rows of
prefixes that no beam holds any more are taken back when rows run short, the oldest first, and nodes that lead nowhere
are forgotten with them. A prefix that comes back after that is read again by the predictor.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakSet

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.model.constants import constant, folded
from transducer_gn.model.predictor import State
from transducer_gn.search.prefix import NO_ROW, Prefix

# Roughly what a node of the tree takes.
PREFIX_BYTES = 150
# The one row that is never taken back: that of the empty prefix.
EMPTY_ROW = 0
FIRST_ROWS = 32


class SearchedPredictor(Protocol):
    """What a search needs of a predictor; see `transducer_gn.model.predictor.Predictor`."""

    def initial_state(self, batch: int) -> State:
        """The state before anything was read; every tensor has the batch as first dimension."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """From `tokens` [n] and the state before them to outputs [n, D] and the state after them."""


class SearchedJoiner(Protocol):
    """What a search needs of a joiner; see `transducer_gn.model.joiner.Joiner`."""

    def project_encoder(self, encoder_out: Tensor) -> Tensor:
        """From encoder frames [..., D] to the joiner's width [..., J]."""

    def project_predictor(self, output: Tensor) -> Tensor:
        """From predictor outputs [..., D] to the joiner's width [..., J]."""

    def __call__(self, projected_encoder: Tensor, projected_predictor: Tensor) -> Tensor:
        """Logits [..., V] from projections [..., J] that broadcast against each other."""


class SearchedModel(Protocol):
    """What a search needs of a model."""

    @property
    def predictor(self) -> SearchedPredictor:
        """Reads tokens."""

    @property
    def joiner(self) -> SearchedJoiner:
        """Weighs labels."""


class Reads(Protocol):
    """What reads tokens for a joiner."""

    def initial_state(self, batch: int) -> State:
        """See `SearchedPredictor.initial_state`."""

    def read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """From `tokens` [n] and the state before them to projected outputs [n, J] and the state after them."""


class Reader:
    """A predictor, and what a joiner makes of its outputs."""

    def __init__(self, predictor: SearchedPredictor, joiner: SearchedJoiner) -> None:
        self.initial_state = predictor.initial_state
        self._step, self._project = predictor.step, joiner.project_predictor

    def read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Reads.read`."""
        output, state = self._step(tokens, state)
        return self._project(output), state


def reader_of(model: SearchedModel) -> Reads:
    """What reads tokens for a model's joiner; its parameters count as constants (`transducer_gn.model.constants`)."""
    quickest = folded(model.predictor, model.joiner)
    return quickest or Reader(constant(model.predictor, "quick"), constant(model.joiner, "quick"))


class HoldsPrefixes(Protocol):
    """Something that must find its prefixes' rows as it left them."""

    prefixes: list[Prefix]


class PrefixStore:
    """Rows for the prefixes of all beams of a search.

    Attributes:
        outputs: [R, J] predictor outputs, projected for the joiner
        state: predictor states after the last token, each tensor [R, ...]
    """

    def __init__(self, reader: Reads) -> None:
        self._reader = reader
        # By age: Python's dictionaries keep their order.
        self._owners: dict[int, Prefix] = {}
        self._holders: WeakSet[HoldsPrefixes] = WeakSet()
        state = reader.initial_state(1)
        start_symbol = torch.full((1,), BLANK, dtype=torch.long, device=state[0].device)
        output, state = reader.read(start_symbol, state)
        self.outputs = _grown(output, FIRST_ROWS)
        self.state = tuple(_grown(part, FIRST_ROWS) for part in state)
        self._free = list(range(FIRST_ROWS - 1, EMPTY_ROW, -1))

    def root(self) -> Prefix:
        """A new empty prefix."""
        return Prefix(None, BLANK, EMPTY_ROW)

    def hold(self, holder: HoldsPrefixes) -> None:
        """Keep the rows of a holder's prefixes for as long as it lives."""
        self._holders.add(holder)

    def row_bytes(self) -> int:
        """Memory of one row."""
        return sum(part[0].numel() * part.element_size() for part in (self.outputs, *self.state))

    def gather(self, prefixes: Sequence[Prefix]) -> Tensor:
        """Projected outputs [n, J] of prefixes that have rows."""
        return self.outputs.index_select(0, self._indices([prefix.row for prefix in prefixes]))

    def read(self, prefixes: Iterable[Prefix]) -> None:
        """Let the predictor read the last token of those prefixes that have no row, all in one call.

        Their parents must have rows.
        """
        new = [prefix for prefix in prefixes if prefix.row == NO_ROW]
        if not new:
            return
        sources = self._indices([prefix.parent.row for prefix in new if prefix.parent is not None])
        state = tuple(part.index_select(0, sources) for part in self.state)
        output, state = self._reader.read(self._indices([prefix.token for prefix in new]), state)
        if len(self._free) < len(new):
            self._grow(len(new))
        for prefix in new:
            prefix.row = self._free.pop()
            self._owners[prefix.row] = prefix
        rows = self._indices([prefix.row for prefix in new])
        self.outputs.index_copy_(0, rows, output)
        for part, values in zip(self.state, state, strict=True):
            part.index_copy_(0, rows, values.to(part.dtype))

    def make_room(self) -> None:
        """Take rows back if few are free. To be called between frames, when all that matters is held by beams."""
        if 4 * len(self._free) > self.outputs.shape[0]:
            return
        held = {prefix.row for holder in self._holders for prefix in holder.prefixes}
        for row, prefix in list(self._owners.items()):
            if 2 * len(self._free) > len(self.outputs):
                break
            if row not in held:
                del self._owners[row]
                self._free.append(row)
                prefix.row = NO_ROW
                prefix.forget()

    def _grow(self, count: int) -> None:
        """At least `count` more free rows."""
        before = len(self.outputs)
        after = max(2 * before, before + count)
        self.outputs = _grown(self.outputs, after)
        self.state = tuple(_grown(part, after) for part in self.state)
        self._free += range(after - 1, before - 1, -1)

    def _indices(self, numbers: list[int]) -> Tensor:
        """Numbers [n] where the rows are."""
        # Three times as quick as torch.tensor.
        return torch.frombuffer(array("q", numbers), dtype=torch.long).to(self.outputs.device)


def _grown(tensor: Tensor, rows: int) -> Tensor:
    """`tensor` [R, ...] with more rows [rows, ...]."""
    grown = tensor.new_zeros(rows, *tensor.shape[1:])
    grown[: len(tensor)] = tensor
    return grown
