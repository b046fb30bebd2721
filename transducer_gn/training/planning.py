"""What is decided about batches before their turn: their chunk, their random seed and, ahead of time, competitors.

Everything random about a batch depends on the run's seed, the epoch and the batch's number alone, never on what was
drawn before: a resumed run draws what the uninterrupted one would have drawn.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import torch

from transducer_gn.common.seeds import stable_seed
from transducer_gn.config import Config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import Chunk, draw_chunk
from transducer_gn.model.subsampling import subsampled_lengths
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.training_pass import Plan, TrainingPass


class Planner:
    """Plans the batches of an epoch, searching `lookahead` of them at a time once alpha is below 1.

    Attributes:
      pending: competitors of the batches that were searched together and have not had their turn yet. They belong to
        the parameters at the time of the search, so a checkpoint must hold them.
    """

    def __init__(self, training_pass: TrainingPass, config: Config, rank: int, device: torch.device):
        self._pass = training_pass
        self._config = config
        self._rank = rank
        self._device = device
        self.pending: deque[Competitors] = deque()

    def plans(self, batches: Iterable[Batch], epoch: int, first: int, alpha_now) -> Iterator[Plan]:
        """Plans for `batches`, the rest of `epoch` from batch number `first` on.

        Args:
          alpha_now: a function that tells alpha at the moment of a search.
        """
        numbered = enumerate(batches, first)
        while group := list(islice(numbered, self._group_size(alpha_now()))):
            group = [(number, batch.to(self._device), self._chunk(batch, epoch, number)) for number, batch in group]
            if not self.pending and self._config.competitors.lookahead and alpha_now() < 1:
                self.pending.extend(self._search_ahead(batch, chunk, alpha_now()) for _, batch, chunk in group)
            for number, batch, chunk in group:
                competitors = self.pending.popleft() if self.pending else None
                yield Plan(batch, chunk, competitors, stable_seed("pass", self._seed, epoch, number, self._rank))

    @property
    def _seed(self) -> int:
        return self._config.training.seed

    def _group_size(self, alpha: float) -> int:
        """How many batches to take at once: those that competitors are pending for, or the next group to search."""
        if self.pending:
            return len(self.pending)
        searched_ahead = alpha < 1 and not self._config.normalisation.exact
        return max(1, self._config.competitors.lookahead) if searched_ahead else 1

    def _chunk(self, batch: Batch, epoch: int, number: int) -> Chunk:
        """The chunk of a batch; the same draw on all ranks. Reads lengths before they go to the device."""
        generator = torch.Generator().manual_seed(stable_seed("chunk", self._seed, epoch, number))
        frames = int(subsampled_lengths(batch.feature_lengths).max())
        return draw_chunk(self._config.model.streaming, frames, generator)

    @torch.no_grad()
    def _search_ahead(self, batch: Batch, chunk: Chunk, alpha: float) -> Competitors:
        """Competitors from an encoder pass of their own, in evaluation mode, as in the paper."""
        training = self._pass.training
        self._pass.eval()
        encoder_out, frame_lengths = self._pass.encode(batch, chunk)
        competitors = self._pass.search(encoder_out, frame_lengths, batch, alpha)
        self._pass.train(training)
        return competitors

    def state_dict(self) -> list[dict[str, torch.Tensor]]:
        return [{"tokens": x.tokens.cpu(), "lengths": x.lengths.cpu()} for x in self.pending]

    def load_state_dict(self, state: list[dict[str, torch.Tensor]]) -> None:
        device = self._device
        self.pending = deque(Competitors(x["tokens"].to(device), x["lengths"].to(device)) for x in state)
