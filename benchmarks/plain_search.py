"""The beam search as it is usually written: one utterance, a Python loop over hypotheses, a cache of predictor outputs.

Frames are projected once, no prefix is read by the predictor twice, and of each hypothesis only the few best extensions
are looked at. By default this is time-synchronous decoding as in the textbook: each round keeps the K best extensions.
With `threshold` it follows the rules of `transducer_gn.search.beam` and gives the same result.
"""

import torch
from torch import Tensor

from transducer_gn.search.prefixes import SearchedModel

Prefix = tuple[int, ...]


class PlainBeamSearch:
    """Beam search over one utterance at a time."""

    def __init__(
        self, model: SearchedModel, beam: int, alpha: float, max_tokens_per_frame: int, threshold: bool = False
    ) -> None:
        self.model = model
        self.beam = beam
        self.alpha = alpha
        self.max_tokens_per_frame = max_tokens_per_frame
        self.threshold = threshold

    @torch.no_grad()
    def search(self, encoder_out: Tensor) -> list[tuple[Prefix, float]]:
        """Hypotheses and scores, best first, of the frames `encoder_out` [T, D]."""
        self.cache = {(): self._read(0, self.model.predictor.initial_state(1))}
        hypotheses: dict[Prefix, float] = {(): 0.0}
        for frame in self.model.joiner.project_encoder(encoder_out):
            finished: dict[Prefix, float] = {}
            current = hypotheses
            for step in range(self.max_tokens_per_frame + 1):
                candidates = []
                for prefix, score in current.items():
                    candidates += self._visit(frame, prefix, score, finished)
                if step == self.max_tokens_per_frame:
                    break
                current = self._next_round(candidates, finished)
                if not current:
                    break
            best = sorted(finished.items(), key=lambda item: -item[1])[: self.beam]
            hypotheses = dict(best)
        return list(hypotheses.items())

    def _read(self, token: int, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The projected output [J] and the state after a token."""
        output, state = self.model.predictor.step(torch.tensor([token]), state)
        return self.model.joiner.project_predictor(output)[0], state

    def _visit(
        self, frame: Tensor, prefix: Prefix, score: float, finished: dict[Prefix, float]
    ) -> list[tuple[float, Prefix, float]]:
        """Finish a hypothesis; gives promise, prefix and score of its most promising extensions."""
        if prefix not in self.cache:
            self.cache[prefix] = self._read(prefix[-1], self.cache[prefix[:-1]][1])
        logits = self.model.joiner(frame, self.cache[prefix][0])
        log_sum = float(logits.logsumexp(0))
        blank = score + float(logits[0]) - self.alpha * log_sum
        if prefix in finished:
            blank = float(torch.logaddexp(torch.tensor(finished[prefix]), torch.tensor(blank)))
        finished[prefix] = blank
        values, tokens = logits[1:].topk(self.beam)
        offset = score - self.alpha * log_sum
        promise = (1 - self.alpha) * log_sum
        return [
            (offset + value + promise, (*prefix, token + 1), offset + value)
            for value, token in zip(values.tolist(), tokens.tolist(), strict=True)
        ]

    def _next_round(
        self, candidates: list[tuple[float, Prefix, float]], finished: dict[Prefix, float]
    ) -> dict[Prefix, float]:
        """The most promising extensions."""
        threshold = -torch.inf
        if self.threshold and len(finished) >= self.beam:
            threshold = sorted(finished.values(), reverse=True)[self.beam - 1]
        candidates.sort(key=lambda candidate: -candidate[0])
        return {prefix: score for promise, prefix, score in candidates[: self.beam] if promise > threshold}
