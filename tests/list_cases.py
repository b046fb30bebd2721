"""Lists of token sequences with random joiner inputs, and what their objectives are when written out."""

import itertools
import math

import oracles
import torch

from transducer_gn.config import ObjectiveConfig
from transducer_gn.lattice.joint import LatticeInputs, OutputLayer
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.training.dense_objective import dense_objective
from transducer_gn.training.nbest_objective import nbest_objective
from transducer_gn.training.schedule import SchedulePoint

WIDTH, VOCABULARY = 5, 4
EXACT = ObjectiveConfig(regulariser_points="all", negligible=0.0)


def lattice_inputs(frames, frame_lengths, prefixes, weight, bias):
    return LatticeInputs(frames, frame_lengths, prefixes, OutputLayer(weight, bias))


def schedule_point(alpha, regulariser_weight=0.0, diagonal_prior=0.0, mwer=0.0):
    return SchedulePoint(alpha, regulariser_weight, diagonal_prior, mwer)


class Case:
    """Random joiner inputs of a batch in which prefixes are shared, sequences repeat and some are missing."""

    def __init__(self, seed, utterances=3, sequences=5, longest=4, frames=4, dtype=torch.float64):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

        self.tokens = torch.randint(1, VOCABULARY, (utterances, sequences, longest), generator=generator)
        self.lengths = torch.randint(-1, longest + 1, (utterances, sequences), generator=generator)
        self.lengths[:, 0] = torch.randint(0, longest + 1, (utterances,), generator=generator)
        self.tokens[:, 1], self.lengths[:, 1] = self.tokens[:, 0], self.lengths[:, 0]  # the search found the reference
        self.frame_lengths = torch.randint(1, frames + 1, (utterances,), generator=generator)
        self.tree = build_prefix_tree(self.tokens, self.lengths)
        self.frames, self.prefixes = normal(utterances, frames, WIDTH), normal(len(self.tree.parents), WIDTH)
        self.weight, self.bias = normal(VOCABULARY, WIDTH), normal(VOCABULARY)
        self.leaves = (self.frames, self.prefixes, self.weight, self.bias)

    def inputs(self):
        return lattice_inputs(self.frames, self.frame_lengths, self.prefixes, self.weight, self.bias)

    def objective(self, settings=EXACT, generator=None, errors=None, **point):
        return nbest_objective(self.inputs(), self.tree, schedule_point(**point), settings, generator, errors)

    def dense(self, **point):
        """The paper's way, with the same prefixes laid out for each sequence."""
        prefixes = self.prefixes[self.tree.nodes].flatten(0, 2)
        inputs = lattice_inputs(self.frames, self.frame_lengths, prefixes, self.weight, self.bias)
        return dense_objective(inputs, self.tokens, self.lengths, schedule_point(**point))

    def alone(self, b, sequences=slice(None)):
        """(inputs, tree) of one utterance, without padding frames."""
        tree = build_prefix_tree(self.tokens[b : b + 1, sequences], self.lengths[b : b + 1, sequences])
        length = int(self.frame_lengths[b])
        prefixes = self.prefixes[self.tree.utterances == b][: len(tree.parents)]
        arguments = (self.frames[b : b + 1, :length], self.frame_lengths[b : b + 1], prefixes)
        return lattice_inputs(*arguments, self.weight, self.bias), tree

    def logits(self, b, s):
        """[U + 1][T][V] raw weights of one sequence."""
        hidden = torch.tanh(self.frames[b] + self.prefixes[self.tree.nodes[b, s]][:, None])
        return hidden @ self.weight.t() + self.bias

    def sequences(self, b):
        """(s, tokens) of the distinct sequences of an utterance."""
        seen = []
        for s, length in enumerate(self.lengths[b].tolist()):
            sequence = tuple(self.tokens[b, s, : max(length, 0)].tolist())
            if length >= 0 and sequence not in seen:
                seen.append(sequence)
                yield s, sequence

    def weights(self, b, s, alpha):
        """(token [U][T], blank [U + 1][T], log_sum [U + 1][T]) of one sequence, interpolated."""
        frames, length = int(self.frame_lengths[b]), int(self.lengths[b, s])
        logits = self.logits(b, s).detach()
        log_sum = [[float(logits[u, t].logsumexp(0)) for t in range(frames)] for u in range(length + 1)]

        def arc(u, t, v):
            return float(logits[u, t, v]) - alpha * log_sum[u][t]

        token = [[arc(u, t, int(self.tokens[b, s, u])) for t in range(frames)] for u in range(length)]
        return token, [[arc(u, t, 0) for t in range(frames)] for u in range(length + 1)], log_sum

    def scores(self, b, alpha):
        """Scores of the distinct sequences of an utterance under interpolated weights, by enumeration of alignments."""
        frames = int(self.frame_lengths[b])
        return [oracles.sequence_score(*self.weights(b, s, alpha)[:2], len(z), frames) for s, z in self.sequences(b)]

    def literal(self, alpha, regulariser_weight, diagonal_prior=0.0):
        """The formula of the paper by enumeration of alignments; the prior is on the tokens of the reference."""
        total = 0.0
        for b, frames in enumerate(self.frame_lengths.tolist()):
            log_sums = [self.weights(b, s, alpha)[2] for s, _ in self.sequences(b)]
            squares = [x * x for rows in log_sums for row in rows for x in row]
            token, blank, _ = self.weights(b, 0, alpha)
            for u, t in itertools.product(range(len(token)), range(frames)):
                token[u][t] -= diagonal_prior * ((t + 0.5) / frames - (u + 0.7) / len(token)) ** 2
            total -= oracles.sequence_score(token, blank, len(token), frames)
            total += (1 - alpha) * oracles.log_sum_exp(self.scores(b, 0.0))
            total += regulariser_weight * frames * sum(squares) / len(squares)
        return total


class AllSequences:
    """All token sequences of a model without context, in which tokens beyond `limit` per frame hardly count.

    The reference comes first. `logits` are its raw weights, [T][1][V].
    """

    def __init__(self, reference=(2, 1), frames=2, vocabulary=3, limit=3):
        self.reference, self.frames, self.vocabulary, self.limit = reference, frames, vocabulary, limit
        generator = torch.Generator().manual_seed(0)
        weight = torch.randn(vocabulary, WIDTH, generator=generator).double()
        bias = torch.tensor([0.0, -9.0, -10.0]).double()
        encoder = torch.randn(1, frames, WIDTH, generator=generator).double()
        sequences = [z for n in range(frames * limit + 1) for z in itertools.product(range(1, vocabulary), repeat=n)]
        sequences = [reference, *(z for z in sequences if z != reference)]
        self.tokens = torch.zeros(1, len(sequences), frames * limit, dtype=torch.int64)
        for n, sequence in enumerate(sequences):
            self.tokens[0, n, : len(sequence)] = torch.tensor(sequence, dtype=torch.int64)
        self.lengths = torch.tensor([[len(z) for z in sequences]])
        self.tree = build_prefix_tree(self.tokens, self.lengths)
        prefixes = torch.zeros(len(self.tree.parents), WIDTH).double()
        self.inputs = lattice_inputs(encoder, torch.tensor([frames]), prefixes, weight, bias)
        self.logits = (torch.tanh(encoder) @ weight.t() + bias)[0, :, None]

    def labels(self):
        """(tokens, weight) of every label sequence."""
        for labels in oracles.label_sequences(self.vocabulary, self.frames, self.limit):
            weight = oracles.label_sequence_weight(self.logits.tolist(), 0, labels)
            yield oracles.tokens_of(labels), math.exp(weight)
