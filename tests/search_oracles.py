"""Readable slow references of the searches: plain Python over dictionaries of prefixes, and tiny models to try.

Weights come from a function `logits(t, prefix)` that gives the V unnormalised log weights after the tokens `prefix` at
frame t. Nothing here is clever, and nothing is shared with the code under test but the definition of the rules.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from oracles import log_sum_exp

Prefix = tuple[int, ...]
Logits = Callable[[int, Prefix], list[float]]


def model_logits(model, encoder_out: Tensor) -> Logits:
    """The weights of a model on the frames `encoder_out` [T, D] of one utterance, each computed once.

    Predictor outputs come from whole sequences, not from the steps that a search makes.
    """
    frames = model.joiner.project_encoder(encoder_out)
    outputs: dict[Prefix, Tensor] = {}
    known: dict[tuple[int, Prefix], list[float]] = {}

    @torch.no_grad()
    def logits(t: int, prefix: Prefix) -> list[float]:
        if prefix not in outputs:
            tokens = torch.tensor([prefix], dtype=torch.long)
            outputs[prefix] = model.joiner.project_predictor(model.predictor.unroll(tokens)[0, -1])
        if (t, prefix) not in known:
            known[t, prefix] = model.joiner(frames[t], outputs[prefix]).tolist()
        return known[t, prefix]

    return logits


def log_sum(values: list[float]) -> float:
    """log-sum of logits, 0 where there is nothing to sum."""
    total = log_sum_exp(values)
    return 0.0 if total == -math.inf else total


def arc_weights(logits: list[float], alpha: float) -> list[float]:
    """logits - alpha * log_sum."""
    normaliser = alpha * log_sum(logits)
    return [value - normaliser for value in logits]


def enumerate_sequences(logits: Logits, frames: int, alpha: float, cap: int) -> dict[Prefix, float]:
    """The score of every token sequence: all alignments with at most `cap` tokens per frame, one by one."""
    alignments: dict[Prefix, list[float]] = {}

    def walk(t: int, emitted: int, prefix: Prefix, weight: float) -> None:
        if t == frames:
            alignments.setdefault(prefix, []).append(weight)
            return
        arcs = arc_weights(logits(t, prefix), alpha)
        walk(t + 1, 0, prefix, weight + arcs[0])
        if emitted < cap:
            for token in range(1, len(arcs)):
                walk(t, emitted + 1, prefix + (token,), weight + arcs[token])

    walk(0, 0, (), 0.0)
    return {prefix: log_sum_exp(weights) for prefix, weights in alignments.items()}


def ranked(scores: dict[Prefix, float]) -> list[tuple[Prefix, float]]:
    """Sequences of weight above 0, best first; of equal ones, the first in the dictionary."""
    return sorted(((p, s) for p, s in scores.items() if s > -math.inf), key=lambda item: -item[1])


def single(value: float) -> float:
    """A score as searches compare it."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def plain_beam_search(logits: Logits, frames: int, beam: int, alpha: float, cap: int) -> list[tuple[Prefix, float]]:
    """The rules that `transducer_gn.search.beam` states, hypothesis by hypothesis; sequences and scores, best first."""
    hypotheses: dict[Prefix, float] = {(): 0.0}
    offset = 0.0
    for t in range(frames):
        finished: dict[Prefix, float] = {}
        current = hypotheses
        for step in range(cap + 1):
            for prefix, score in current.items():
                score += arc_weights(logits(t, prefix), alpha)[0]
                if score > -math.inf:
                    finished[prefix] = log_sum_exp([finished.get(prefix, -math.inf), score])
            if step < cap:
                current = plain_extensions(logits, t, current, finished, beam, alpha)
        best = sorted(finished.items(), key=lambda item: -single(item[1]))[:beam]
        top = best[0][1] if best else 0.0
        hypotheses = {prefix: score - top for prefix, score in best}
        offset += top
    return sorted(((p, s + offset) for p, s in hypotheses.items()), key=lambda item: -item[1])


def plain_extensions(
    logits: Logits, t: int, current: dict[Prefix, float], finished: dict[Prefix, float], beam: int, alpha: float
) -> dict[Prefix, float]:
    """The next round: the most promising extensions of `current`."""
    candidates = []
    for prefix, score in current.items():
        values = logits(t, prefix)
        total = log_sum(values)
        for token in range(1, len(values)):
            promise = values[token] + (score + (1 - 2 * alpha) * total)
            candidates.append((single(promise), prefix + (token,), score + values[token] - alpha * total))
    candidates.sort(key=lambda candidate: -candidate[0])
    threshold = -math.inf
    if len(finished) >= beam:
        threshold = single(sorted(finished.values(), reverse=True)[beam - 1])
    return {prefix: score for promise, prefix, score in candidates[:beam] if promise > threshold}


def plain_greedy_search(logits: Logits, frames: int, alpha: float, cap: int) -> tuple[Prefix, float, list[int]]:
    """The best label at every point, the smallest id of equal ones: tokens, score and times."""
    prefix, score, times = (), 0.0, []
    for t in range(frames):
        for emitted in range(cap + 1):
            arcs = arc_weights(logits(t, prefix), alpha)
            label = 0 if emitted == cap else max(range(len(arcs)), key=lambda v: (arcs[v], -v))
            score += arcs[label]
            if label == 0:
                break
            prefix += (label,)
            times.append(t)
    return prefix, score, times


class Model:
    """A predictor and a joiner."""

    def __init__(self, predictor, joiner) -> None:
        self.predictor = predictor
        self.joiner = joiner


class TablePredictor:
    """Remembers the last `context` tokens as one number: its output [B, 1] and its state ([B],)."""

    def __init__(self, vocabulary: int, context: int) -> None:
        self.vocabulary = vocabulary
        self.states = vocabulary**context

    def initial_state(self, batch: int) -> tuple[Tensor]:
        """No tokens."""
        return (torch.zeros(batch, dtype=torch.long),)

    def step(self, tokens: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        """Shift one token in."""
        number = (state[0] * self.vocabulary + tokens) % self.states
        return number[:, None].double(), (number,)

    def unroll(self, tokens: Tensor) -> Tensor:
        """Outputs [B, U + 1, 1]."""
        number = torch.zeros(len(tokens), dtype=torch.long)
        numbers = [number]
        for column in tokens.unbind(1):
            number = (number * self.vocabulary + column) % self.states
            numbers.append(number)
        return torch.stack(numbers, dim=1)[:, :, None].double()


class TableJoiner(nn.Module):
    """Looks logits up in `table` [frames, states, V], which may hold anything: frames and outputs are row numbers."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def project_encoder(self, encoder_out: Tensor) -> Tensor:
        """Frame numbers [..., 1], as they are."""
        return encoder_out

    def project_predictor(self, output: Tensor) -> Tensor:
        """State numbers [..., 1], as they are."""
        return output

    def forward(self, projected_encoder: Tensor, projected_predictor: Tensor) -> Tensor:
        """Logits [..., V] from numbers [..., 1]."""
        return self.table[projected_encoder[..., 0].long(), projected_predictor[..., 0].long()]


def table_model(table: Tensor, context: int = 1) -> tuple[Model, Tensor]:
    """A model of the weights `table` [T, V ** context, V], and the encoder output [1, T, 1] that goes with it."""
    frames, _, vocabulary = table.shape
    encoder_out = torch.arange(frames).double().view(1, frames, 1)
    return Model(TablePredictor(vocabulary, context), TableJoiner(table)), encoder_out
