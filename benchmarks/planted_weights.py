"""A model of the paper's size whose weights are random, except that its searches look like those of a trained one.

Random weights alone would emit as many tokens as allowed at every frame. Here one frame in four speaks for a token and
for a handful of others that are easily confused with it, the rest for blank; and a prefix that ends in one of them
speaks against all of them, as a trained predictor would. Hypotheses are then long, compete, and share most prefixes.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from transducer_gn.config import PredictorConfig
from transducer_gn.model.constants import FoldedReader, QuickLstmPredictor, make_folded
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import LstmPredictor, State, build_predictor, prepend_blank

FRAMES_PER_TOKEN = 4
GROUP = 6
STRENGTH = 15.0


class PlantedModel(nn.Module):
    """An LSTM predictor and a joiner, both of width `dim`. Tokens come in groups that are easily confused."""

    def __init__(self, vocabulary: int = 500, dim: int = 512) -> None:
        super().__init__()
        config = PredictorConfig(dim=dim)
        self.joiner = Joiner(dim, dim, dim, vocabulary)
        self.predictor = PlantedPredictor(build_predictor(config, vocabulary), self._answers())

    def directions(self) -> Tensor:
        """[V, J] where to move the joiner's hidden layer to make a token likely."""
        return functional.normalize(self.joiner.output_weight.detach(), dim=1)

    def group_directions(self) -> Tensor:
        """[G, J] the same for all tokens of a group."""
        directions = self.directions()[1:]
        groups = len(directions) // GROUP
        return directions[: groups * GROUP].view(groups, GROUP, -1).sum(1)

    def _answers(self) -> Tensor:
        """[V, D] what to add to the predictor's output after each token."""
        towards_blank = self.directions()[0]
        groups = self.group_directions()
        against = (towards_blank - groups).repeat_interleave(GROUP, dim=0)
        vocabulary = self.joiner.output_weight.shape[0]
        wanted = functional.pad(against, (0, 0, 1, vocabulary - 1 - len(against)))
        return solve(self.joiner.predictor_projection.weight(), STRENGTH * wanted)

    def encoder_out(self, batch: int, frames: int) -> Tensor:
        """[batch, frames, D] that makes the model emit about one token every four frames."""
        directions, groups = self.directions(), self.group_directions()
        group = torch.randint(len(groups), (batch, frames))
        members = 1 + group[..., None] * GROUP + torch.arange(GROUP)
        shares = 0.5 + 0.5 * torch.rand(batch, frames, GROUP, 1)
        token = (shares * directions[members]).sum(2) - 0.5 * directions[0]
        is_token = torch.rand(batch, frames, 1) < 1 / FRAMES_PER_TOKEN
        wanted = STRENGTH * torch.where(is_token, token, directions[0] + 0.25 * token)
        projection = self.joiner.encoder_projection
        return solve(projection.weight(), wanted - projection.bias())


class PlantedPredictor(nn.Module):
    """An LSTM predictor with something added to its output after each token."""

    def __init__(self, predictor: LstmPredictor, answers: Tensor) -> None:
        super().__init__()
        self.predictor = predictor
        self.output_dim = predictor.output_dim
        self.register_buffer("answers", answers)

    def initial_state(self, batch: int) -> State:
        """See `Predictor.initial_state`."""
        return self.predictor.initial_state(batch)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Predictor.step`."""
        output, state = self.predictor.step(tokens, state)
        return output + self.answers[tokens], state

    def unroll(self, tokens: Tensor) -> Tensor:
        """See `Predictor.unroll`."""
        return self.predictor.unroll(tokens) + self.answers[prepend_blank(tokens)]

    def unroll_tree(self, parents: Tensor, tokens: Tensor, depths: Tensor) -> Tensor:
        """See `Predictor.unroll_tree`."""
        return self.predictor.unroll_tree(parents, tokens, depths) + self.answers[tokens]


class PlantedReader(FoldedReader):
    """A planted predictor with the joiner's projection [J, D] folded in, as a plain LSTM's would be."""

    def __init__(self, predictor: PlantedPredictor, projection: Tensor) -> None:
        super().__init__(QuickLstmPredictor(predictor.predictor), projection)
        self._answers = functional.linear(predictor.answers, projection)

    def read(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `FoldedReader.read`."""
        outputs, after = super().read(tokens, state)
        return outputs.add_(self._answers.index_select(0, tokens)), after


@make_folded.register
def _(predictor: PlantedPredictor, projection: Tensor) -> FoldedReader:
    return PlantedReader(predictor, projection)


class PlantedEncoder(nn.Module):
    """A real encoder, with its whole cost, whose output hardly matters beside what is planted."""

    def __init__(self, encoder: nn.Module, planted: Tensor) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("planted", planted)

    def forward(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        """See `Encoder.forward`; the planted frames [B, T, D] must be as many as come out."""
        frames, lengths = self.encoder(*arguments)
        return self.planted + 1e-3 * frames, lengths


def solve(weight: Tensor, wanted: Tensor) -> Tensor:
    """Inputs [..., D] that a linear layer of `weight` [J, D] takes to `wanted` [..., J]."""
    columns = wanted.detach().double().flatten(0, -2).T
    return torch.linalg.solve(weight.detach().double(), columns).T.float().view(*wanted.shape[:-1], -1)
