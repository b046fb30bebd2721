"""The prefixes of token sequences that a search works with, and what the predictor said about them.

Prefixes are nodes of a tree that grows for as long as the search runs. Nodes have numbers that are never used twice,
so that two hypotheses are the same exactly if their numbers are. Only a pool of them is kept: those of the current
beam, and of the others those created last, so that a prefix that comes back soon is not computed again.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.model.predictor import Predictor, State
from transducer_gn.search.packing import rows_to_compute

ROOT = 0
# Numbers that no node has: of a row that is not in use, and of the parent of such a row and of the root.
NO_NODE = -1
NO_PARENT = -2


@dataclass(frozen=True)
class PrefixPool:
    """R rows for each of B utterances. The tensors are overwritten in place when prefixes are added.

    Attributes:
      nodes: [B, R] number of the prefix in a row.
      parents: [B, R] number of the prefix without its last token.
      tokens: [B, R] last token.
      outputs: [B, R, J] predictor output, projected for the joiner.
      state: predictor state after the last token, each tensor [B, R, ...].
    """

    nodes: Tensor
    parents: Tensor
    tokens: Tensor
    outputs: Tensor
    state: State

    @classmethod
    def start(cls, model, batch: int, rows: int) -> "PrefixPool":
        """Pools with the empty prefix, in row 0."""
        predictor: Predictor = model.predictor
        state = predictor.initial_state(1)
        start_symbol = torch.full((1,), BLANK, dtype=torch.long, device=state[0].device)
        output, state = predictor.step(start_symbol, state)
        output = model.joiner.project_predictor(output)
        nodes = torch.full((batch, rows), NO_NODE, dtype=torch.long, device=output.device)
        nodes[:, 0] = ROOT
        return cls(
            nodes=nodes,
            parents=torch.full_like(nodes, NO_PARENT),
            tokens=torch.full_like(nodes, BLANK),
            outputs=output.repeat(batch, rows, 1),
            state=tuple(part[:, None].repeat(batch, rows, *[1] * (part.dim() - 1)) for part in state),
        )

    def find(self, parents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Whether [B, M] and in which row [B, M] the pool has the prefixes `parents` [B, M] plus `tokens` [B, M]."""
        same = (self.parents[:, None] == parents[:, :, None]) & (self.tokens[:, None] == tokens[:, :, None])
        found, rows = same.to(torch.uint8).max(-1)
        return found.bool(), rows

    def utterances(self, start: int, end: int) -> "PrefixPool":
        """The pools of a range of utterances; they share memory with these."""
        parts = {name: getattr(self, name)[start:end] for name in ("nodes", "parents", "tokens", "outputs")}
        return PrefixPool(**parts, state=tuple(part[start:end] for part in self.state))

    def free_rows(self, in_use: list[Tensor], count: int) -> Tensor:
        """[B, count] different rows, none of them in any of `in_use`, each [B, ...]: unused ones, then the oldest."""
        age_order = self.nodes.scatter(1, torch.cat(in_use, dim=1), torch.iinfo(torch.long).max)
        return age_order.argsort(dim=1)[:, :count]

    def gather_outputs(self, rows: Tensor, chosen: Tensor) -> Tensor:
        """Projected predictor outputs [n, J] of those of `rows` [B, M] whose flattened indices are `chosen` [n]."""
        return self.outputs.flatten(0, 1).index_select(0, self._flat(rows).flatten().index_select(0, chosen))

    def add(self, model, is_new: Tensor, rows: Tensor, nodes: Tensor, tokens: Tensor, parent_rows: Tensor) -> None:
        """Let the predictor read one token after each of some prefixes, all in one call, and keep what it says.

        Args:
          is_new: [B, M] whether there is something to add; the rest is ignored.
          rows: [B, M] rows to write to, different ones for one utterance, none of `parent_rows` among them.
          nodes: [B, M] numbers of the new prefixes.
          tokens: [B, M] their last tokens.
          parent_rows: [B, M] rows of the prefixes that they extend.
        """
        chosen = rows_to_compute(is_new)
        if len(chosen) == 0:
            return
        sources = self._flat(parent_rows).flatten().index_select(0, chosen)
        targets = self._flat(rows).flatten().index_select(0, chosen)
        tokens = tokens.flatten().index_select(0, chosen)
        is_new = is_new.flatten().index_select(0, chosen)
        parents = self.nodes.flatten().index_select(0, sources)
        state = tuple(part.flatten(0, 1).index_select(0, sources) for part in self.state)
        output, state = model.predictor.step(tokens, state)
        self._write(self.outputs, targets, model.joiner.project_predictor(output))
        for part, values in zip(self.state, state, strict=True):
            self._write(part, targets, values)
        self._write(self.nodes, targets, torch.where(is_new, nodes.flatten().index_select(0, chosen), NO_NODE))
        self._write(self.parents, targets, torch.where(is_new, parents, NO_PARENT))
        self._write(self.tokens, targets, tokens)

    def _flat(self, rows: Tensor) -> Tensor:
        """Indices [B, M] of `rows` [B, M] when utterances and rows are flattened to one dimension."""
        utterances = torch.arange(len(rows), device=rows.device)
        return utterances[:, None] * self.nodes.shape[1] + rows

    @staticmethod
    def _write(target: Tensor, rows: Tensor, values: Tensor) -> None:
        """Overwrite flattened rows [n] of `target` [B, R, ...], which is contiguous, with `values` [n, ...]."""
        target.flatten(0, 1).index_copy_(0, rows, values.to(target.dtype))


def concatenate_pools(pools: list[PrefixPool]) -> PrefixPool:
    """The pools of several, one utterance after the other; the result shares no memory with them."""
    names = ("nodes", "parents", "tokens", "outputs")
    return PrefixPool(
        **{name: torch.cat([getattr(pool, name) for pool in pools]) for name in names},
        state=tuple(torch.cat(parts) for parts in zip(*(pool.state for pool in pools), strict=True)),
    )
