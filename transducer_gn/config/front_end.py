"""Settings of the front end: what makes feature vectors of audio."""

from dataclasses import dataclass
from typing import Literal

from transducer_gn.common.errors import require, require_positive
from transducer_gn.common.framing import FILTER_BANKS, Framing
from transducer_gn.common.units import SAMPLING_RATE

SAMPLES_PER_MS = SAMPLING_RATE // 1000
# Of the outputs of Moonshine tiny: width of a layer's, their number, and milliseconds from one to the next.
MOONSHINE_DIM, MOONSHINE_LAYERS, MOONSHINE_MS = 288, 6, 20
MOONSHINE_SHORTEST_MS = 60


@dataclass(frozen=True)
class FrontEndConfig:
    """Front end: from audio to feature vectors. All but `kind` are settings of moonshine-tiny.

    Attributes:
        kind: "filter-banks", or "moonshine-tiny" for a public pretrained encoder that was made streaming
        layers: layers of the pretrained encoder whose outputs stand side by side in a vector, rising, from 1
        chunk: milliseconds of audio that are encoded together; null for whole utterances, which cannot stream
        right: milliseconds after a chunk's end that its vectors see, and by which everything is known later
        left_chunks: chunks of history that the pretrained encoder's attention sees; null for all
        stack: vectors of 20 ms that make up one encoder frame
        freeze: keep the pretrained encoder as it is, on vectors that prepare.sh has computed once; false trains all
            of it but its convolutions along, from audio, at optimiser.front_end_lr. A branch may go from true to false,
            and back on features of the encoder as it was trained (prepare.sh --front-end-file takes the checkpoint)
    """

    kind: Literal["filter-banks", "moonshine-tiny"] = "filter-banks"
    layers: tuple[int, ...] = (2, 4, 6)
    chunk: int | None = 640
    right: int = 0
    left_chunks: int | None = None
    stack: int = 4
    freeze: bool = True

    def __post_init__(self) -> None:
        section = "model.front_end"
        require(
            self.kind in ("filter-banks", "moonshine-tiny"),
            f"{section}.kind",
            f'must be "filter-banks" or "moonshine-tiny", not "{self.kind}"',
        )
        # YAML and checkpoints have lists.
        object.__setattr__(self, "layers", tuple(self.layers))
        require(
            len(self.layers) > 0
            and list(self.layers) == sorted(set(self.layers))
            and self.layers[0] >= 1
            and self.layers[-1] <= MOONSHINE_LAYERS,
            f"{section}.layers",
            f"must be rising numbers from 1 to {MOONSHINE_LAYERS}, not {list(self.layers)}",
        )
        require_positive(section, stack=self.stack)
        require(self.right >= 0, f"{section}.right", f"must be 0 or more, not {self.right}")
        left = self.left_chunks
        require(left is None or left >= 0, f"{section}.left_chunks", f"must be 0 or more, or null, not {left}")
        if self.chunk is None:
            for name, unused in (("right", self.right == 0), ("left_chunks", left is None)):
                require(unused, f"{section}.{name}", f"needs {section}.chunk: without chunks, frames see all there is")
            return
        step = MOONSHINE_MS * self.stack
        require(
            self.chunk % step == 0 and self.chunk >= MOONSHINE_SHORTEST_MS,
            f"{section}.chunk",
            f"must be a multiple of {step} ms ({section}.stack vectors of {MOONSHINE_MS} ms) and at least "
            f"{MOONSHINE_SHORTEST_MS}, or null, not {self.chunk}",
        )

    @property
    def framing(self) -> Framing:
        """The numbers that all parts count frames by."""
        if self.kind == "filter-banks":
            return FILTER_BANKS
        return Framing(
            feature_dim=MOONSHINE_DIM * len(self.layers),
            feature_step=MOONSHINE_MS * SAMPLES_PER_MS,
            subsampling=self.stack,
            right=self.right * SAMPLES_PER_MS,
        )

    @property
    def is_trained(self) -> bool:
        """Whether it has parameters that are trained along, so that batches hold audio instead of features."""
        return self.kind != "filter-banks" and not self.freeze

    @property
    def chunk_frames(self) -> int | None:
        """Encoder frames that become known together, of which an encoder's chunks must be multiples; None for all."""
        if self.kind == "filter-banks":
            return 1
        return None if self.chunk is None else self.chunk // (MOONSHINE_MS * self.stack)

    def check_chunk(self, frames: int | None, name: str) -> None:
        """Refuse chunks of so many encoder frames, None for full context, that do not fit this front end's.

        Args:
            frames: of a chunk
            name: of the setting, for the error
        """
        if frames is None or self.chunk_frames == 1:
            return
        require(
            self.chunk_frames is not None,
            name,
            "must be null, since the front end sees whole utterances (model.front_end.chunk is null)",
        )
        require(
            frames % (self.chunk_frames or 1) == 0,
            name,
            f"must be a multiple of the {self.chunk_frames} frames that the front end gives at a time "
            f"(model.front_end.chunk of {self.chunk} ms), not {frames}",
        )
