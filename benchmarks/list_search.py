"""Searches in plain Python lists, on weights that were multiplied out beforehand: the opponents of ours.

They are what one would write for a single stream, with the rules of `transducer_gn.search`: every factor, and every
pair of layers without anything between them, is one matrix; what each token contributes to the first gates of the LSTM
is a table; hypotheses are small Python objects, scores are Python's numbers, and the predictor reads each prefix once,
all that are new in one call. Greedy search goes from label to label over a whole batch. They multiply as torch does,
or by packed weights as ours do (`transducer_gn.model.packed`), which makes them as quick as they can be.

All of this preparation is done once, outside the time that is measured.
"""

import math

import torch
from planted_weights import PlantedModel
from torch import Tensor
from torch.nn import functional

from transducer_gn.model.packed import PackedWeight


class PlainWeight:
    """What `PackedWeight` does, by torch's own products."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight.clone(), bias

    def product(self, x: Tensor) -> Tensor:
        """From `x` [..., inputs] to [..., outputs]."""
        return functional.linear(x, self.weight, self.bias)

    def added_to(self, other: Tensor, x: Tensor) -> Tensor:
        """`other` [n, outputs], overwritten, and the product of `x` [n, inputs]."""
        return other.addmm_(x, self.weight.t())


class FoldedModel:
    """The weights of a planted model of two LSTM layers as a search needs them."""

    @torch.no_grad()
    def __init__(self, model: PlantedModel, packed: bool) -> None:
        layer = PackedWeight if packed else PlainWeight
        predictor, joiner = model.predictor.predictor, model.joiner
        first, second = predictor.lstm.layers
        self.dim = first.state_weight.value.shape[1]
        self.gates = functional.linear(predictor.embedding.weight(), first.input_weight(), first.bias())
        self.first = layer(first.state_weight())
        self.second = layer(torch.cat([second.input_weight(), second.state_weight()], dim=1), second.bias())
        projection = joiner.predictor_projection.weight()
        self.top = layer(projection @ predictor.output.weight())
        self.answers = (predictor.output.bias() + model.predictor.answers) @ projection.t()
        self.frames = layer(joiner.encoder_projection.weight(), joiner.encoder_projection.bias())
        self.output = layer(joiner.output_weight, joiner.output_bias)

    def start(self) -> tuple[Tensor, Tensor]:
        """Output [1, J] and state [1, 4 * H] of the empty prefix."""
        return self.read(torch.tensor([0]), torch.zeros(1, 4 * self.dim))

    def read(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """From `tokens` [n] and the state [n, 4 * H] before them to outputs [n, J] and the state after them."""
        dim = self.dim
        after = torch.empty_like(state)
        gates = self.first.added_to(self.gates.index_select(0, tokens), state[:, :dim])
        self._cell(gates, state[:, 2 * dim : 3 * dim], after, 0)
        hidden = torch.cat([after[:, :dim], state[:, dim : 2 * dim]], dim=1)
        self._cell(self.second.product(hidden), state[:, 3 * dim :], after, dim)
        return self.top.added_to(self.answers.index_select(0, tokens), after[:, dim : 2 * dim]), after

    def _cell(self, gates: Tensor, cell: Tensor, after: Tensor, start: int) -> None:
        """Write the states that follow from gates [n, 4 * H] and cells [n, H]: hidden at `start`, cells 2 * H later."""
        add, keep, candidate, show = gates.chunk(4, dim=1)
        cell = torch.addcmul(keep.sigmoid_() * cell, add.sigmoid_(), candidate.tanh_())
        after[:, start + 2 * self.dim : start + 3 * self.dim] = cell
        torch.mul(cell.tanh(), show.sigmoid_(), out=after[:, start : start + self.dim])

    def logits(self, frames: Tensor, outputs: Tensor) -> Tensor:
        """Logits [n, V] of frames and outputs [n, J]."""
        return self.output.product((frames + outputs).tanh_())


class Node:
    """A prefix: its last token, what precedes and follows it, and what the predictor said."""

    __slots__ = ("next", "output", "parent", "state", "token")

    def __init__(self, parent: "Node | None", token: int) -> None:
        self.parent, self.token = parent, token
        self.next: dict[int, Node] = {}
        self.output: Tensor | None = None
        self.state: Tensor | None = None

    def tokens(self) -> list[int]:
        """All tokens."""
        tokens, node = [], self
        while node.parent is not None:
            tokens.append(node.token)
            node = node.parent
        return tokens[::-1]


class ListBeamSearch:
    """Beam search over one utterance at a time."""

    def __init__(self, model: FoldedModel, beam: int, alpha: float, max_tokens_per_frame: int) -> None:
        self.model, self.beam, self.alpha, self.most = model, beam, alpha, max_tokens_per_frame

    @torch.no_grad()
    def search(self, encoder_out: Tensor) -> list[tuple[list[int], float]]:
        """Tokens and scores, best first, of the frames `encoder_out` [T, D]."""
        root = Node(None, 0)
        output, state = self.model.start()
        root.output, root.state = output[0], state[0]
        nodes, scores, stacked = [root], [0.0], output
        for frame in self.model.frames.product(encoder_out).split(1):
            finished: dict[Node, float] = {}
            round_nodes, round_scores, outputs = nodes, scores, stacked
            for step in range(self.most + 1):
                logits = self.model.logits(frame, outputs)
                chosen = self._visit(logits, round_nodes, round_scores, finished, step)
                if not chosen:
                    break
                round_nodes, round_scores = self._extend(chosen, round_nodes)
                outputs = torch.stack([node.output for node in round_nodes])
            best = sorted(finished, key=finished.__getitem__, reverse=True)[: self.beam]
            if best != nodes:
                nodes, stacked = best, torch.stack([node.output for node in best])
            scores = [finished[node] for node in nodes]
        return [(node.tokens(), score) for node, score in zip(nodes, scores, strict=True)]

    def search_all(self, encoder_out: Tensor) -> list[list[tuple[list[int], float]]]:
        """The same for one utterance of `encoder_out` [B, T, D] after the other."""
        return [self.search(frames) for frames in encoder_out]

    def _visit(
        self, logits: Tensor, nodes: list[Node], scores: list[float], finished: dict[Node, float], step: int
    ) -> list[tuple[float, int, int, float]]:
        """Finish the hypotheses of a round; gives promise, row, token and score of those of the next one."""
        log_sums = logits.logsumexp(1).tolist()
        for node, score, blank, log_sum in zip(nodes, scores, logits[:, 0].tolist(), log_sums, strict=True):
            score += blank - self.alpha * log_sum
            before = finished.get(node)
            finished[node] = score if before is None else _log_add(before, score)
        if step == self.most:
            return []
        threshold = -math.inf
        if len(finished) >= self.beam:
            threshold = sorted(finished.values(), reverse=True)[self.beam - 1]
        offsets = [score + (1 - 2 * self.alpha) * total for score, total in zip(scores, log_sums, strict=True)]
        largest = logits[:, 1:].amax(1).tolist()
        rows = [row for row, most in enumerate(largest) if most + offsets[row] > threshold]
        if not rows:
            return []
        values, tokens = (logits if len(rows) == len(nodes) else logits[rows])[:, 1:].topk(self.beam)
        candidates = []
        for row, own, ids in zip(rows, values.tolist(), tokens.tolist(), strict=True):
            weight = scores[row] - self.alpha * log_sums[row]
            for value, token in zip(own, ids, strict=True):
                if value + offsets[row] <= threshold:
                    break
                candidates.append((-value - offsets[row], row, token + 1, value + weight))
        candidates.sort()
        return candidates[: self.beam]

    def _extend(self, chosen: list[tuple[float, int, int, float]], nodes: list[Node]) -> tuple[list[Node], list[float]]:
        """The nodes of the next round and their scores; new ones are read by the predictor."""
        extended, new = [], []
        for _, row, token, _ in chosen:
            node = nodes[row].next.get(token)
            if node is None:
                node = nodes[row].next[token] = Node(nodes[row], token)
                new.append(node)
            extended.append(node)
        if new:
            states = torch.stack([node.parent.state for node in new])
            outputs, states = self.model.read(torch.tensor([node.token for node in new]), states)
            for node, output, state in zip(new, outputs.unbind(), states.unbind(), strict=True):
                node.output, node.state = output, state
        return extended, [score for *_, score in chosen]


def _log_add(first: float, second: float) -> float:
    """Log of the sum of two numbers given by their logs."""
    high, low = (first, second) if first > second else (second, first)
    return high + math.log1p(math.exp(low - high))


class LoopingGreedySearch:
    """Greedy search from label to label over one batch: frames until every utterance has a token, then one step.

    The predictor reads one token of every utterance at a time, and between two tokens frames are passed at which the
    best label is the blank, each utterance at its own pace.
    """

    def __init__(self, model: FoldedModel, max_tokens_per_frame: int) -> None:
        self.model, self.most = model, max_tokens_per_frame

    @torch.no_grad()
    def search(self, encoder_out: Tensor) -> list[list[int]]:
        """Tokens of utterances of the same length, `encoder_out` [B, T, D]."""
        batch, length, _ = encoder_out.shape
        frames = self.model.frames.product(encoder_out).flatten(0, 1)
        outputs, states = (part.repeat(batch, 1) for part in self.model.start())
        found: list[list[int]] = [[] for _ in range(batch)]
        places, emitted = [0] * batch, [0] * batch
        active = list(range(batch))
        while active:
            tokens = [0] * batch
            searching = active
            while searching:
                index = torch.tensor([b * length + places[b] for b in searching])
                own = outputs if len(searching) == batch else outputs[searching]
                labels = self.model.logits(frames.index_select(0, index), own).argmax(1).tolist()
                still = []
                for b, label in zip(searching, labels, strict=True):
                    if label and emitted[b] < self.most:
                        tokens[b] = label
                        emitted[b] += 1
                        continue
                    places[b] += 1
                    emitted[b] = 0
                    if places[b] < length:
                        still.append(b)
                searching = still
            active = [b for b in active if tokens[b]]
            for b in active:
                found[b].append(tokens[b])
            if active:
                outputs, states = self._read(tokens, active, outputs, states)
        return found

    def _read(self, tokens: list[int], active: list[int], outputs: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs [B, J] and states [B, 4 * H] after one token of each active utterance."""
        if len(active) == len(tokens):
            return self.model.read(torch.tensor(tokens), states)
        rows = torch.tensor(active)
        new_outputs, new_states = self.model.read(torch.tensor(tokens)[rows], states[rows])
        return outputs.index_copy(0, rows, new_outputs), states.index_copy(0, rows, new_states)
