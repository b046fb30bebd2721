"""The frames of utterances that are searched together, which may come from several batches.

Batches are of different lengths, and one of them may be many times as long as the others. So their frames stand one
after the other in one tensor, not side by side and padded to the longest of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class JoinedFrames:
    """Frames of B utterances.

    Attributes:
        frames: [R, J] frames of all utterances, projected for the joiner, and padding that nobody reads
        starts: B rows at which utterances begin
        lengths: B numbers of frames
    """

    frames: Tensor
    starts: list[int]
    lengths: list[int]

    @classmethod
    def of(cls, batches: Sequence[Tensor], lengths: Sequence[Sequence[int]]) -> "JoinedFrames":
        """Frames of batches.

        Args:
            batches: each [B', T', J], padded
            lengths: for each, B' numbers of frames
        """
        starts: list[int] = []
        first = 0
        for batch in batches:
            count, longest = batch.shape[:2]
            starts += [first + number * longest for number in range(count)]
            first += count * longest
        flat = [batch.flatten(0, 1) for batch in batches]
        frames = torch.cat(flat) if len(flat) > 1 else flat[0]
        return cls(frames, starts, [length for own in lengths for length in own])

    def longest_first(self) -> list[int]:
        """The utterances in the order of their lengths: those that are still running at any time come first."""
        return sorted(range(len(self.lengths)), key=lambda utterance: -self.lengths[utterance])

    def by_time(self) -> list[Tensor]:
        """For each time the frames [n, J] of those utterances that have not ended, longest first."""
        order = self.longest_first()
        counts: list[int] = []
        rows: list[int] = []
        running = len(order)
        for t in range(max(self.lengths, default=0)):
            while self.lengths[order[running - 1]] <= t:
                running -= 1
            counts.append(running)
            rows += [self.starts[utterance] + t for utterance in order[:running]]
        return list(self.frames.index_select(0, self._indices(rows)).split(counts)) if rows else []

    def rows_by_time(self) -> Tensor:
        """[T, B] where the frame of each utterance at each time stands; after its end, where its last frame does."""
        starts, lengths = self._indices(self.starts), self._indices(self.lengths)
        times = torch.arange(max(self.lengths, default=0), device=self.frames.device)
        # Utterances without any frame may read what they like, as long as it is there.
        return (starts + torch.minimum(times[:, None], (lengths - 1).clamp(min=0))).clamp(max=len(self.frames) - 1)

    def _indices(self, numbers: list[int]) -> Tensor:
        """Numbers [n] where the frames are."""
        return torch.tensor(numbers, dtype=torch.long, device=self.frames.device)
