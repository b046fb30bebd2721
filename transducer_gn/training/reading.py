"""Reading: what the predictor learns from text without speech.

Without a frame, the joiner is a language model: logits = W tanh(B predictor) + c, of which the blank's is left
out. Trained along with its cross-entropy on text, the predictor knows of more words than were ever spoken to it. No
gradient reaches the encoder.
"""

from pathlib import Path

from torch import Tensor
from torch.nn import functional

from transducer_gn.common.units import BLANK
from transducer_gn.config import ReadingConfig
from transducer_gn.data.text import Text
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.model.precision import full_precision
from transducer_gn.model.transducer import Transducer


class Reader:
    """Reads sentences beside batches of speech.

    Args:
        settings: which text, and how much of it
        tokenizer: between texts and tokens
    """

    def __init__(self, settings: ReadingConfig, tokenizer: Tokenizer) -> None:
        assert settings.text is not None
        self._settings = settings
        self._text = Text(Path(settings.text), tokenizer, settings.longest)

    def loss(self, model: Transducer, reference_tokens: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """What to add to the objective of a batch, and the cross-entropy per token that was read.

        Args:
            model: whose predictor reads
            reference_tokens: [] number of tokens of the batch's references; what is read has `weight` times their
                weight, however much it is
            seed: which sentences are read depends on it alone
        """
        entropy = cross_entropy(model, self._text.draw(self._settings.tokens, seed))
        return self._settings.weight * reference_tokens * entropy, entropy.detach()


@full_precision
def cross_entropy(model: Transducer, sentences: Tensor) -> Tensor:
    """[] minus the mean log-probability of the tokens of sentences [B, U], each given those before it.

    The sentences are in the host's memory and zero at padding: nothing is asked of the device.
    """
    count = int((sentences != BLANK).sum())
    tokens = sentences.to(model.joiner.output_bias.device)
    hidden = model.joiner.project_predictor(model.predictor.unroll(tokens)[:, :-1]).tanh()
    layer = model.joiner.output_layer
    # Nobody writes the blank, which is the first token; where it stands is padding.
    logits = functional.linear(hidden.flatten(0, 1), layer.weight[BLANK + 1 :], layer.bias[BLANK + 1 :])
    targets = tokens.flatten() - (BLANK + 1)
    return functional.cross_entropy(logits, targets, reduction="sum", ignore_index=-1) / count


def build_reader(settings: ReadingConfig, tokenizer: Tokenizer) -> Reader | None:
    """The reader that the settings ask for, if they do."""
    return Reader(settings, tokenizer) if settings.text is not None else None
