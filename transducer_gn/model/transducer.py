"""The Transducer: encoder, predictor and joiner under one roof, and a pretrained front end where there is one."""

from collections.abc import Callable

from torch import Tensor, nn

from transducer_gn.config import ModelConfig
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.encoder import Encoder
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.moonshine import MOONSHINE_TINY, MoonshineEncoder
from transducer_gn.model.moonshine_features import MoonshineFeatures
from transducer_gn.model.predictor import build_predictor

Masks = Callable[[Tensor, Tensor], Tensor]


class Transducer(nn.Module):
    """The parts of a Transducer; blank is id 0 of `vocab_size` ids.

    Attributes:
        front_end: what makes feature vectors, if it has parameters; None for filter banks, which have none
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.vocab_size = config.vocab_size
        self.encoder = Encoder(config.encoder, config.front_end.framing)
        self.predictor = build_predictor(config.predictor, config.vocab_size)
        self.joiner = Joiner(
            config.encoder.dim,
            self.predictor.output_dim,
            config.joiner.dim,
            config.vocab_size,
            config.joiner.blank_prior,
        )
        self.front_end: MoonshineFeatures | None = None
        if config.front_end.kind == "moonshine-tiny":
            self.front_end = MoonshineFeatures(MoonshineEncoder(MOONSHINE_TINY), config.front_end)

    def encode(
        self, inputs: Tensor, lengths: Tensor, chunk: Chunk, warmup: float = 1.0, masks: Masks | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode whole utterances.

        Args:
            inputs: [B, T', F] feature vectors, or [B, N] samples
            lengths: [B] how many of them an utterance has
            chunk: what a frame sees
            warmup: share of the encoder's warm-up that is done, in training
            masks: what training does to the vectors of samples, given these and their numbers

        Returns:
            frames [B, T, D], zero at padding, and their numbers [B]
        """
        if inputs.dim() == 2:
            if self.front_end is None:
                raise ValueError("filter banks are computed before a batch is made")
            inputs, lengths = self.front_end(inputs, lengths)
            inputs = masks(inputs, lengths) if masks is not None else inputs
        return self.encoder(inputs, lengths, chunk, warmup)


def build_model(config: ModelConfig) -> Transducer:
    """The model that `config` describes, with new parameters drawn from torch's global generator.

    Those of a pretrained front end come from elsewhere: a checkpoint, or what prepare.sh stored beside its vectors.
    """
    return Transducer(config)
