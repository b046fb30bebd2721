"""Settings of the Transducer: front end, encoder, chunks, predictor, joiner."""

from dataclasses import dataclass, field
from typing import Literal

from transducer_gn.common.errors import require, require_positive, require_probability
from transducer_gn.common.framing import require_tail
from transducer_gn.config.fields import may_change
from transducer_gn.config.front_end import FrontEndConfig


@dataclass(frozen=True)
class EncoderConfig:
    """Conformer encoder: from the front end's feature vectors to frames, several vectors each.

    Attributes:
        dim: width of the residual stream and of the output
        attention_dim: summed width of the queries (and of keys, values) of all heads
        heads: attention heads
        feedforward_dim: inner width of each of the two feed-forward modules of a layer
        layers: Conformer layers
        kernel: frames that the depthwise convolution sees; odd
        causal: let the convolution see only the past; needed for anything that streams
        dropout: dropout in feed-forward modules, on residual branches and on relative positions
        layer_drop: probability per batch and layer that the layer is nearly bypassed in training
    """

    dim: int = 512
    attention_dim: int = 1024
    heads: int = 8
    feedforward_dim: int = 2048
    layers: int = 12
    kernel: int = 31
    causal: bool = True
    dropout: float = 0.1
    layer_drop: float = 0.075

    def __post_init__(self) -> None:
        section = "model.encoder"
        require_positive(
            section,
            dim=self.dim,
            attention_dim=self.attention_dim,
            heads=self.heads,
            feedforward_dim=self.feedforward_dim,
            layers=self.layers,
            kernel=self.kernel,
        )
        require_probability(section, dropout=self.dropout, layer_drop=self.layer_drop)
        require(
            self.attention_dim % self.heads == 0,
            f"{section}.attention_dim",
            f"{self.attention_dim} cannot be divided among {section}.heads = {self.heads}",
        )
        require(self.dim % 2 == 0, f"{section}.dim", f"must be even for sine and cosine positions, not {self.dim}")
        require(self.kernel % 2 == 1, f"{section}.kernel", f"must be odd, not {self.kernel}")


@dataclass(frozen=True)
class StreamingConfig:
    """Chunks of attention, in encoder frames: drawn anew for each batch in training, fixed in evaluation.

    Attributes:
        dynamic_chunks: draw a chunk size for every training batch; false trains with full context
        max_chunk: largest chunk drawn in training; rounded up to chunks of the front end
        full_context_share: about this share of training batches see the whole utterance, so that one model serves
            both uses
        left_chunks: chunks of history in training; null for all
        chunk: chunk size in evaluation and streaming; null for full context
        left_context: frames of history in evaluation and streaming, a multiple of the chunk; null for all
        tail_padding: feature frames of silence after an utterance that is recognised, as icefall has them, so that the
            last tokens come out; 0 for none. Training has none
    """

    dynamic_chunks: bool = True
    max_chunk: int = 25
    full_context_share: float = 0.25
    left_chunks: int | None = 4
    chunk: int | None = 16
    left_context: int | None = 64
    tail_padding: int = may_change(0)

    def __post_init__(self) -> None:
        section = "model.streaming"
        require_tail(f"{section}.tail_padding", self.tail_padding)
        require_positive(section, max_chunk=self.max_chunk)
        share = self.full_context_share
        require(0 <= share <= 1, f"{section}.full_context_share", f"must be from 0 to 1, not {share}")
        for name, value in (("left_chunks", self.left_chunks), ("left_context", self.left_context)):
            require(value is None or value >= 0, f"{section}.{name}", f"must be 0 or more, or null, not {value}")
        if self.chunk is None:
            return
        require_positive(section, chunk=self.chunk)
        require(
            self.left_context is None or self.left_context % self.chunk == 0,
            f"{section}.left_context",
            f"{self.left_context} is no multiple of {section}.chunk = {self.chunk}",
        )


@dataclass(frozen=True)
class PredictorConfig:
    """Predictor: the network over the tokens so far.

    Attributes:
        kind: "lstm" remembers all tokens, "finite-state" only the last few
        embedding_dim: width of the token embedding of the LSTM
        dim: width of the LSTM's hidden state, of the finite-state embedding, and of the output
        layers: layers of the LSTM
        forget_bias: constant bias of the LSTM's forget gates; at 0 they start half open, and what was read 30 tokens
            ago is gone, at 3 a fifth of it is left. Small models that spell words need it to learn from afar
        context: tokens that the finite-state predictor sees
    """

    kind: Literal["lstm", "finite-state"] = "lstm"
    embedding_dim: int = 1024
    dim: int = 512
    layers: int = 2
    forget_bias: float = 0.0
    context: int = 2

    def __post_init__(self) -> None:
        require(
            self.kind in ("lstm", "finite-state"),
            "model.predictor.kind",
            f'must be "lstm" or "finite-state", not "{self.kind}"',
        )
        require_positive(
            "model.predictor",
            embedding_dim=self.embedding_dim,
            dim=self.dim,
            layers=self.layers,
            context=self.context,
        )


@dataclass(frozen=True)
class JoinerConfig:
    """Joiner: from encoder frame and predictor output to one weight per token.

    Attributes:
        dim: width of the hidden layer
        blank_prior: probability of a blank before anything is learnt, the tokens sharing the rest; null for all alike.
            With it, small models begin to learn sooner
    """

    dim: int = 512
    blank_prior: float | None = None

    def __post_init__(self) -> None:
        require_positive("model.joiner", dim=self.dim)
        prior = self.blank_prior
        require(
            prior is None or 0 < prior < 1, "model.joiner.blank_prior", f"must be between 0 and 1, or null, not {prior}"
        )


@dataclass(frozen=True)
class ModelConfig:
    """The Transducer.

    Attributes:
        vocab_size: tokens including blank
        front_end: from audio to feature vectors
        encoder: Conformer encoder
        streaming: chunks of the encoder's attention
        predictor: predictor
        joiner: joiner
    """

    vocab_size: int = 500
    front_end: FrontEndConfig = field(default_factory=FrontEndConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    streaming: StreamingConfig = field(default_factory=StreamingConfig)
    predictor: PredictorConfig = field(default_factory=PredictorConfig)
    joiner: JoinerConfig = field(default_factory=JoinerConfig)

    def __post_init__(self) -> None:
        require(self.vocab_size >= 2, "model.vocab_size", f"must be at least 2, not {self.vocab_size}")
        for name, uses_chunks in (
            ("dynamic_chunks", self.streaming.dynamic_chunks),
            ("chunk", self.streaming.chunk is not None),
        ):
            require(
                self.encoder.causal or not uses_chunks,
                f"model.streaming.{name}",
                "chunks need model.encoder.causal = true, since a convolution that sees the future cannot stream",
            )
        self.front_end.check_chunk(self.streaming.chunk, "model.streaming.chunk")
        require(
            self.encoder.causal or self.front_end.chunk_frames in (None, 1),
            "model.front_end.chunk",
            "must be null where model.encoder.causal is false: a system that looks ahead hears whole utterances",
        )

    @property
    def has_chunks(self) -> bool:
        """Whether it can recognise with chunks: also one that is configured to hear whole utterances may."""
        return self.encoder.causal and self.front_end.chunk_frames is not None
