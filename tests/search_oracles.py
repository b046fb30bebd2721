"""Readable slow references of the searches: plain Python over dictionaries of prefixes, and tiny models to try.

Weights come from a function `logits(t, prefix)` that gives the V unnormalised log weights after the tokens `prefix` at
frame t. Nothing here is clever, and nothing is shared with the code under test but the definition of the rules.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from oracles import log_sum_exp
from torch import Tensor, nn

from transducer_gn.config import PredictorConfig
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import build_predictor

Prefix = tuple[int, ...]
Logits = Callable[[int, Prefix], list[float]]


def model_logits(model, encoder_out: Tensor) -> Logits:
    """The weights of a model on the frames `encoder_out` [T, D] of one utterance, each computed once.

    Predictor outputs come from whole sequences, not from the steps that a search makes.
    """
    frames = model.joiner.project_encoder(encoder_out)
    known: dict[Prefix, list[list[float]]] = {}

    @torch.no_grad()
    def logits(t: int, prefix: Prefix) -> list[float]:
        if prefix not in known:
            outputs = model.predictor.unroll(torch.tensor([prefix], dtype=torch.long))
            known[prefix] = model.joiner(frames, model.joiner.project_predictor(outputs[0, -1])).tolist()
        return known[prefix][t]

    return logits


def log_sum(values: list[float]) -> float:
    """log-sum of logits, 0 where there is nothing to sum."""
    total = log_sum_exp(values)
    return 0.0 if total == -math.inf else total


def arc_weights(logits: list[float], alpha: float) -> list[float]:
    """Logits - alpha * log_sum."""
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
                walk(t, emitted + 1, (*prefix, token), weight + arcs[token])

    walk(0, 0, (), 0.0)
    return {prefix: log_sum_exp(weights) for prefix, weights in alignments.items()}


def ranked(scores: dict[Prefix, float]) -> list[tuple[Prefix, float]]:
    """Sequences of weight above 0, best first; of equal ones, the first in the dictionary."""
    return sorted(((p, s) for p, s in scores.items() if s > -math.inf), key=lambda item: -item[1])


def single(value: float) -> float:
    """A score as searches compare it."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


# The score of a hypothesis, and the frames of its tokens in the best of its alignments.
Hypothesis = tuple[float, tuple[int, ...]]


def plain_beam_search(
    logits: Logits, frames: int, beam: int, alpha: float, cap: int
) -> list[tuple[Prefix, float, tuple[int, ...]]]:
    """The rules that `transducer_gn.search.beam` states, hypothesis by hypothesis: sequences, scores, times."""
    hypotheses: dict[Prefix, Hypothesis] = {(): (0.0, ())}
    offset = 0.0
    for t in range(frames):
        finished: dict[Prefix, Hypothesis] = {}
        current = hypotheses
        for step in range(cap + 1):
            for prefix, (score, times) in current.items():
                finish(finished, prefix, score + arc_weights(logits(t, prefix), alpha)[0], times)
            if step < cap:
                current = plain_extensions(logits, t, current, finished, beam, alpha)
        best = sorted(finished.items(), key=lambda item: -single(item[1][0]))[:beam]
        top = best[0][1][0] if best else 0.0
        hypotheses = {prefix: (score - top, times) for prefix, (score, times) in best}
        offset += top
    found = [(prefix, score + offset, times) for prefix, (score, times) in hypotheses.items()]
    return sorted(found, key=lambda hypothesis: -hypothesis[1])


def finish(finished: dict[Prefix, Hypothesis], prefix: Prefix, score: float, times: tuple[int, ...]) -> None:
    """Add a hypothesis that has taken its blank; of two alignments, the better one gives the times."""
    if score == -math.inf:
        return
    before, times_before = finished.get(prefix, (-math.inf, ()))
    finished[prefix] = (log_sum_exp([before, score]), times if single(score) > single(before) else times_before)


def plain_extensions(
    logits: Logits,
    t: int,
    current: dict[Prefix, Hypothesis],
    finished: dict[Prefix, Hypothesis],
    beam: int,
    alpha: float,
) -> dict[Prefix, Hypothesis]:
    """The next round: the most promising extensions of `current`."""
    candidates = []
    for prefix, (score, times) in current.items():
        values = logits(t, prefix)
        total = log_sum(values)
        for token in range(1, len(values)):
            promise = values[token] + (score + (1 - 2 * alpha) * total)
            hypothesis = (score + values[token] - alpha * total, (*times, t))
            candidates.append((single(promise), (*prefix, token), hypothesis))
    candidates.sort(key=lambda candidate: -candidate[0])
    threshold = -math.inf
    if len(finished) >= beam:
        threshold = single(sorted((score for score, _ in finished.values()), reverse=True)[beam - 1])
    return {prefix: hypothesis for promise, prefix, hypothesis in candidates[:beam] if promise > threshold}


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


def table_logits(table: Tensor, context: int = 1) -> Logits:
    """The weights of `table_model`."""
    rows = table.tolist()
    vocabulary = table.shape[2]

    def logits(t: int, prefix: Prefix) -> list[float]:
        state = 0
        for token in prefix[-context:]:
            state = state * vocabulary + token
        return rows[t][state]

    return logits


ALPHAS = (0.0, 0.3, 1.0)


def random_model(seed: int, kind: str, vocabulary: int) -> Model:
    """A tiny model with weights large enough for hypotheses to differ, and a bias for or against blank."""
    torch.manual_seed(seed)
    config = PredictorConfig(kind=kind, embedding_dim=3, dim=5, layers=1 + seed % 2, context=1 + seed % 3)
    predictor = build_predictor(config, vocabulary).double()
    joiner = Joiner(4, predictor.output_dim, 6, vocabulary).double()
    with torch.no_grad():
        joiner.output.weight.log_scale += 1.5
        joiner.output.bias.value += torch.randn(vocabulary).double()
        joiner.output.bias.value[0] += seed % 3
    return Model(predictor, joiner)


def random_frames(batch: int, frames: int) -> Tensor:
    """Encoder output [batch, frames, 4]."""
    return 2 * torch.randn(batch, frames, 4, dtype=torch.double)


EXTREMES = {
    "all weights equal": torch.zeros(6, 4, 4),
    "blank never among the best": torch.tensor([-50.0, 1, 2, 3]).expand(6, 4, 4),
    "huge token weights": torch.tensor([0.0, 1e4, 2e4, 3e4]).expand(6, 4, 4),
    "huge blank weight": torch.tensor([1e4, 0.0, 1, 2]).expand(6, 4, 4),
    "no blank at all": torch.tensor([-math.inf, 0.0, 1, 2]).expand(6, 4, 4),
    "nothing but blank": torch.tensor([0.5, -math.inf, -math.inf, -math.inf]).expand(6, 4, 4),
    "nothing at all": torch.full((6, 4, 4), -math.inf),
    "a token forbids everything": torch.zeros(6, 4, 4).index_fill(1, torch.tensor([2]), -math.inf),
    "a dead frame": torch.zeros(6, 4, 4).index_fill(0, torch.tensor([3]), -math.inf),
}
