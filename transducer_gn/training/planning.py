"""What is decided about batches before their turn: their chunk, their random seed and, ahead of time, competitors.

Everything random about a batch depends on the run's seed, the epoch and the batch's number alone, never on what was
drawn before: a resumed run draws what the uninterrupted one would have drawn.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch

from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import Config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import Chunk, draw_chunk
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.distributed import World
from transducer_gn.training.training_pass import Plan, TrainingPass


class Planner:
    """Plans one batch after another; with look-ahead, whole groups of batches are searched before their turn.

    Args:
        training_pass: encodes and searches
        config: of the run
        world: this process and its device
        pending: competitors that were found before the run was stopped, for the batches that come first
    """

    def __init__(
        self, training_pass: TrainingPass, config: Config, world: World, pending: Sequence[Competitors] = ()
    ) -> None:
        self._pass = training_pass
        self._config = config
        self._world = world
        self._found_before = pending
        self._epoch = 0
        self._batches: Iterator[tuple[int, Batch]] = iter(())
        self._group: deque[Plan] = deque()

    @property
    def pending(self) -> list[Competitors]:
        """Competitors of planned batches whose turn has not come.

        They belong to the parameters at the time of their search, so that a checkpoint must hold them.
        """
        return [plan.competitors for plan in self._group if plan.competitors is not None]

    def begin(self, batches: Iterable[Batch], epoch: int, first: int) -> None:
        """Go on with `batches`, which are those of `epoch` from number `first` on."""
        self._epoch = epoch
        self._batches = enumerate(batches, first)
        # Batches that were searched before a stop are not searched again: the parameters have moved since.
        found, self._found_before = self._found_before, ()
        self._group = self._with_competitors(self._take(len(found)), found)

    def next_plans(self, count: int, alpha: float) -> list[Plan]:
        """Plans of the next `count` batches, or of as many as are left of the epoch.

        Args:
            alpha: interpolation weight now, at which competitors are searched if it is time to
        """
        plans: list[Plan] = []
        while len(plans) < count:
            if not self._group:
                self._group = self._next_group(alpha)
            if not self._group:
                break
            plans.append(self._group.popleft())
        return plans

    def _next_group(self, alpha: float) -> deque[Plan]:
        """The next batch, or the next `lookahead` batches with competitors; none at the end of the epoch."""
        lookahead = self._config.competitors.lookahead
        needs_none = (alpha == 1 and not self._config.mwer.is_used) or self._config.normalisation.exact
        if lookahead == 0 or needs_none:
            return deque(self._take(1))
        group = self._take(lookahead)
        return self._with_competitors(group, self._search_ahead(group, alpha))

    def _take(self, count: int) -> list[Plan]:
        """Plans without competitors of up to `count` batches."""
        return [self._plan(number, batch) for number, batch in islice(self._batches, count)]

    def _plan(self, number: int, batch: Batch) -> Plan:
        seed = stable_seed("pass", self._config.training.seed, self._epoch, number, self._world.rank)
        return Plan(batch.to(self._world.device), self._chunk(batch, number), None, seed)

    def _chunk(self, batch: Batch, number: int) -> Chunk:
        """The chunk of a batch; the same draw on all ranks. Reads lengths before they go to the device."""
        seed = stable_seed("chunk", self._config.training.seed, self._epoch, number)
        model = self._config.model
        framing, lengths = model.front_end.framing, batch.feature_lengths
        lengths = framing.feature_frames(lengths) if batch.is_audio else lengths
        frames = int(framing.encoder_lengths(lengths).max())
        generator = torch.Generator().manual_seed(seed)
        return draw_chunk(model.streaming, frames, generator, model.front_end.chunk_frames or 1)

    @torch.no_grad()
    def _search_ahead(self, group: list[Plan], alpha: float) -> list[Competitors]:
        """Competitors from an encoder pass of their own, in evaluation mode, as in the paper; all from one search."""
        if not group:
            return []
        training = self._pass.training
        self._pass.eval()
        encoded = [self._pass.encode(plan.batch, plan.chunk) for plan in group]
        found = self._pass.search_together(encoded, [plan.batch for plan in group], alpha)
        self._pass.train(training)
        return found

    @staticmethod
    def _with_competitors(plans: list[Plan], competitors: Sequence[Competitors]) -> deque[Plan]:
        return deque(replace(plan, competitors=found) for plan, found in zip(plans, competitors, strict=True))
