"""Updates of a model of the paper's size on planted weights, for what is measured or counted of them.

The cost of search and lattices depends on what the model says, so the parameters are random but for a planted part that
makes searches look like those of a trained model (planted_weights.py); references are its best hypotheses with a token
changed.
"""

from dataclasses import replace
from pathlib import Path

import torch
from planted_weights import PlantedEncoder, PlantedModel

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config import Config, config_parser, read_config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import Chunk
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.distributed import World
from transducer_gn.training.learner import Learner
from transducer_gn.training.optimiser import build_optimiser, build_schedule
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import TrainingPass

PAPERS_SIZE = Path(__file__).parents[1] / "conf" / "librispeech.yaml"
LOCAL, GLOBAL = SchedulePoint(alpha=1.0, regulariser=0.0), SchedulePoint(alpha=0.3, regulariser=0.01)
CHUNK = Chunk(16, 64)


def configuration(path: Path = PAPERS_SIZE, **settings: object) -> Config:
    """The settings of a file, with others of those named like `competitors_count`."""
    flags = [f"--{name.replace('_', '.', 1)}={value}" for name, value in settings.items()]
    return read_config(config_parser("benchmark"), [f"--config={path}", *flags])[0]


class PlantedPass(TrainingPass):
    """A training pass that always searches at alpha 1.

    Planted weights are not roughly normalised, as trained ones are, so their search looks like that of a trained model
    at alpha 1 only. Below alpha 1 it costs one operation more in every round but the last.
    """

    def search(self, encoder_out: torch.Tensor, frame_lengths: torch.Tensor, batch: Batch, alpha: float) -> Competitors:
        """Competitors at alpha 1, whatever `alpha` is."""
        return super().search(encoder_out, frame_lengths, batch, 1.0)


class PlantedLearner(Learner):
    """A learner of the configured model, with planted frames, predictor and joiner.

    Attributes:
        batch: what it learns from, with references
        hypothesis_tokens: mean number of tokens of the competitors
    """

    def __init__(self, config: Config, utterances: int, seconds: float) -> None:
        # Updates cost what they cost, but must leave the planted part as it is, or the next one would search another.
        config = replace(config, optimiser=replace(config.optimiser, initial_lr=1e-12))
        super().__init__(config, World())
        batch = random_batch(utterances, seconds)
        planted = PlantedModel(config.model.vocab_size, config.model.encoder.dim)
        frames = int(FILTER_BANKS.encoder_lengths(batch.feature_lengths).max())
        self.model.encoder = PlantedEncoder(self.model.encoder, planted.encoder_out(utterances, frames))
        self.model.predictor, self.model.joiner = planted.predictor, planted.joiner
        self.optimiser = build_optimiser(config.optimiser, self.model.parameters())
        self.schedule = build_schedule(config.optimiser, self.optimiser)
        own = PlantedPass(self.model, config).eval()
        with torch.no_grad():
            encoder_out, frame_lengths = own.encode(batch, CHUNK)
        self.batch, self.hypothesis_tokens = with_references(own, encoder_out, frame_lengths, batch)
        self.use(own)

    def use(self, training_pass: TrainingPass) -> None:
        """Compute objectives by another training pass of the same model from now on."""
        self.training_pass = self._shared_pass = training_pass.train()


@torch.no_grad()
def with_references(
    training_pass: PlantedPass, encoder_out: torch.Tensor, frame_lengths: torch.Tensor, batch: Batch
) -> tuple[Batch, float]:
    """The batch with references, and the mean number of tokens of all hypotheses.

    References are the best hypotheses for `encoder_out` [B, T, D], each with the token in its middle changed.
    """
    found = training_pass.search(encoder_out, frame_lengths, batch, 1.0)
    tokens, lengths = found.tokens[:, 0], found.lengths[:, 0]
    middle = (lengths // 2)[:, None]
    vocabulary = training_pass.config.model.vocab_size
    tokens = tokens.scatter(1, middle, 1 + tokens.gather(1, middle) % (vocabulary - 1))
    return replace(batch, tokens=tokens, token_lengths=lengths), float(found.lengths.double().mean())


def random_batch(utterances: int, seconds: float) -> Batch:
    """Utterances of equal length with random features, and so many tokens that no competitor is too long for them."""
    generator = torch.Generator().manual_seed(0)
    frames = round(seconds * 100)
    return Batch(
        features=torch.randn(utterances, frames, 80, generator=generator),
        feature_lengths=torch.full((utterances,), frames),
        tokens=torch.ones(utterances, frames, dtype=torch.int64),
        token_lengths=torch.full((utterances,), frames),
        texts=[""] * utterances,
        ids=[str(n) for n in range(utterances)],
        groups=["ordinary"] * utterances,
        units=[str(n) for n in range(utterances)],
        durations=torch.full((utterances,), float(seconds)),
        custom=[{}] * utterances,
    )
