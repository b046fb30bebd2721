"""Predictors: networks over the tokens emitted so far.

All of them satisfy one protocol, and nothing outside this file knows which one runs. The start of an utterance is
the blank, id 0: the output for the empty prefix is that of a step with blank from the initial state.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from transducer_gn.config import PredictorConfig
from transducer_gn.model.lstm import Lstm
from transducer_gn.model.precision import full_precision
from transducer_gn.model.scaled import ScaledEmbedding, ScaledLinear, ScaledTensor

# Every tensor of a state has the batch as first dimension, so that a search can pick, repeat and drop rows of any
# predictor's state by indexing.
State = tuple[Tensor, ...]


class Predictor(Protocol):
    """From prefixes of tokens to vectors of size `output_dim`; the three ways to compute them agree."""

    output_dim: int

    def initial_state(self, batch: int) -> State:
        """The state before anything was read, for `batch` utterances."""

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read one token per row: from `tokens` [B] and the state before to outputs [B, D] and the state after."""

    def unroll(self, tokens: Tensor) -> Tensor:
        """Outputs [B, U+1, D] for all prefixes, the empty one first, of padded sequences `tokens` [B, U].

        The padding may be any id; it affects only the outputs beyond a sequence's own.
        """

    def unroll_tree(self, parents: Tensor, tokens: Tensor, depths: Tensor) -> Tensor:
        """Outputs [P, D] for the nodes of a forest of prefix trees, each computed once.

        `parents` [P] gives each node's parent, which precedes it, or -1 at roots; `tokens` [P] the last token of
        its prefix, 0 at roots; `depths` [P] the length of its prefix, 0 at roots.
        """


def prepend_blank(tokens: Tensor) -> Tensor:
    """What a predictor reads for all prefixes of `tokens` [B, U]: the start symbol, then the tokens [B, U+1]."""
    return torch.nn.functional.pad(tokens, (1, 0))


class LstmPredictor(nn.Module):
    """Embedding, LSTM, linear layer: remembers all tokens.

    It runs in full precision also under autocast: its share of the work is small, its errors add up over a
    sequence, and not every device has an LSTM in half precision.
    """

    def __init__(self, vocab_size: int, embedding_dim: int, dim: int, layers: int, forget_bias: float = 0.0) -> None:
        super().__init__()
        self.output_dim = dim
        self.embedding = ScaledEmbedding(vocab_size, embedding_dim)
        self.lstm = Lstm(embedding_dim, dim, layers, forget_bias)
        self.output = ScaledLinear(dim, dim)

    def initial_state(self, batch: int) -> State:
        """Hidden and cell states, each [batch, layers, dim]."""
        return self.lstm.initial_state(batch)

    @full_precision
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Predictor.step`."""
        hidden, after = self.lstm.step(self.embedding(tokens), (state[0], state[1]))
        return self.output(hidden), after

    @full_precision
    def unroll(self, tokens: Tensor) -> Tensor:
        """See `Predictor.unroll`."""
        return self.output(self.lstm.sequence(self.embedding(prepend_blank(tokens))))

    @full_precision
    def unroll_tree(self, parents: Tensor, tokens: Tensor, depths: Tensor) -> Tensor:
        """See `Predictor.unroll_tree`: one batched step per depth."""
        return self.output(self.lstm.tree(self.embedding(tokens), parents, depths))


class FiniteStatePredictor(nn.Module):
    """A feed-forward network over the last `context` tokens, blanks before the start.

    Embeddings are weighted per channel and position, summed and rectified, so that there are only
    vocab_size ** context different outputs.
    """

    def __init__(self, vocab_size: int, dim: int, context: int) -> None:
        super().__init__()
        self.output_dim = dim
        self.vocab_size = vocab_size
        self.context = context
        self.embedding = ScaledEmbedding(vocab_size, dim)
        self.mixing = ScaledTensor(context, dim, rms=context**-0.5)

    def initial_state(self, batch: int) -> State:
        """The tokens before the one to come, oldest first: blanks [batch, context - 1]."""
        device = self.mixing.value.device
        return (torch.zeros(batch, self.context - 1, dtype=torch.long, device=device),)

    @full_precision
    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Predictor.step`."""
        contexts = torch.cat([state[0], tokens.unsqueeze(1)], dim=1)
        return self._outputs(contexts), (contexts[:, 1:],)

    @full_precision
    def unroll(self, tokens: Tensor) -> Tensor:
        """See `Predictor.unroll`."""
        padded = torch.nn.functional.pad(tokens, (self.context, 0))
        return self._outputs(padded.unfold(1, self.context, 1))

    @full_precision
    def unroll_tree(self, parents: Tensor, tokens: Tensor, depths: Tensor) -> Tensor:
        """See `Predictor.unroll_tree`: all nodes at once, by following parents `context` times."""
        nodes = torch.arange(len(parents), device=parents.device)
        newest_first = []
        for _ in range(self.context):
            newest_first.append(torch.where(nodes < 0, 0, tokens[nodes]))
            nodes = torch.where(nodes < 0, -1, parents[nodes])
        return self._outputs(torch.stack(newest_first[::-1], dim=1))

    @full_precision
    def all_states(self) -> Tensor:
        """Outputs [V ** context, D] of every state: its tokens are the base-V digits of its number, newest last."""
        device = self.mixing.value.device
        digits = self.vocab_size ** torch.arange(self.context - 1, -1, -1, device=device)
        states = torch.arange(self.vocab_size**self.context, device=device)
        return self._outputs(states.unsqueeze(1) // digits % self.vocab_size)

    def _outputs(self, contexts: Tensor) -> Tensor:
        """From the last tokens [..., context], newest last, to outputs [..., D]."""
        return (self.embedding(contexts) * self.mixing()).sum(dim=-2).relu()


def build_predictor(config: PredictorConfig, vocab_size: int) -> LstmPredictor | FiniteStatePredictor:
    """The predictor that `config` asks for."""
    if config.kind == "lstm":
        return LstmPredictor(vocab_size, config.embedding_dim, config.dim, config.layers, config.forget_bias)
    return FiniteStatePredictor(vocab_size, config.dim, config.context)
