"""Reading: what the predictor learns from text without speech.

Without a frame, the joiner is a language model: logits = W tanh(B predictor) + c, of which the blank's is left
out. Trained along with its cross-entropy on text, the predictor knows of more words than were ever spoken to it. No
gradient reaches the encoder.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from transducer_gn.config import ReadingConfig
from transducer_gn.data.text import Sentences, Text
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
            reference_tokens: [] number of tokens of the batch's references, of which each weighs as much as
                1 / `weight` of those that are read, however many are
            seed: which sentences are read depends on it alone
        """
        device = reference_tokens.device
        drawn = self._text.draw(self._settings.tokens, seed)
        sentences = Sentences(drawn.tokens.to(device), drawn.lengths.to(device))
        entropy = reading_loss(model, sentences) / drawn.lengths.sum()
        return self._settings.weight * reference_tokens * entropy, entropy.detach()


@full_precision
def reading_loss(model: Transducer, sentences: Sentences) -> Tensor:
    """[] minus the log-probability of all tokens of the sentences, each given those before it."""
    tokens, lengths = sentences.tokens, sentences.lengths
    is_token = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
    outputs = model.predictor.unroll(tokens)[:, :-1][is_token]
    hidden = model.joiner.project_predictor(outputs).tanh()
    layer = model.joiner.output_layer
    # Token 0 is the blank, which nobody writes.
    logits = functional.linear(hidden, layer.weight[1:], layer.bias[1:])
    return functional.cross_entropy(logits, tokens[is_token] - 1, reduction="sum")


def build_reader(settings: ReadingConfig, tokenizer: Tokenizer) -> Reader | None:
    """The reader that the settings ask for, if they do."""
    return Reader(settings, tokenizer) if settings.text is not None else None
