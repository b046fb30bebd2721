"""What a runtime has to know about an exported system: one JSON file beside its graphs."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import FILTER_BANKS, Framing, require_tail
from transducer_gn.common.json_files import read_json, write_json
from transducer_gn.common.typed import shown, typed
from transducer_gn.common.units import BLANK, SAMPLING_RATE
from transducer_gn.model.moonshine_context import Context

FORMAT = 1
METADATA = "metadata.json"
TOKENS = "tokens.txt"
TOKEN_MODEL = "tokenizer.model"
PARTS = ("encoder", "predictor", "joiner")
FRONT_END = "front_end"
# Of weights in the files, by name of the precision that a user asks for.
SUFFIXES = {"float32": ".onnx", "int8": ".int8.onnx"}


@dataclass(frozen=True)
class StateTensor:
    """One tensor of the predictor's state: input `name`, output `new_NAME`; zeros at the start.

    Attributes:
        shape: without the batch, which comes first
        dtype: "float32" or "int64"
    """

    name: str
    shape: list[int]
    dtype: str


@dataclass(frozen=True)
class FrontEndLayout:
    """A pretrained front end, which has a graph of its own.

    Attributes:
        kind: "moonshine-tiny"
        chunk: samples that are encoded together
        right: samples after a chunk's end that its frames see
        left_chunks: chunks of history that its frames see; None for all, with a memory that grows
        window: samples that a step is given, zeros after those that were heard
        width: numbers of a frame
        memory: shape of a stream's memory without the batch and without the frames, which are the dimension before the
            last: layers, heads, keys and values
    """

    kind: str
    chunk: int
    right: int
    left_chunks: int | None
    window: int
    width: int
    memory: list[int]

    @property
    def context(self) -> Context:
        """How far its frames see."""
        return Context(self.chunk, self.right, self.left_chunks)


@dataclass(frozen=True)
class Layout:
    """The content of the file.

    Attributes:
        name: of the parameters, such as "epoch-30"
        alpha: interpolation weight; it is part of the joiner's graph already
        vocab_size: labels, the blank included
        max_tokens_per_frame: most tokens between two blanks
        chunk: encoder frames of a step
        left_context: encoder frames that a step sees of the past
        framing: how samples become feature vectors and these encoder frames
        memory: shape of a stream's memory, without the batch
        history: shape of a stream's history, without the batch
        predictor_state: what the predictor remembers
        precisions: what there are files for
        features: how feature vectors are computed
        front_end: the graph that computes them; None for filter banks, which have none
        tail_padding: feature vectors of silence that follow an utterance
        blank: id of the blank
        sampling_rate: samples per second
        format: of this file
    """

    name: str
    alpha: float
    vocab_size: int
    max_tokens_per_frame: int
    chunk: int
    left_context: int
    framing: Framing
    memory: list[int]
    history: list[int]
    predictor_state: list[StateTensor]
    precisions: list[str]
    features: dict[str, Any] = field(default_factory=dict)
    front_end: FrontEndLayout | None = None
    tail_padding: int = 0
    blank: int = BLANK
    sampling_rate: int = SAMPLING_RATE
    format: int = FORMAT

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the graphs."""
        return PARTS if self.front_end is None else (*PARTS, FRONT_END)

    def write(self, folder: Path) -> None:
        """Write the file into a folder."""
        write_json(folder / METADATA, asdict(self))


def read_layout(folder: Path) -> Layout:
    """Read the file of a folder; UserError if there is none that this version understands."""
    path = folder / METADATA
    try:
        content = read_json(path, dict[str, Any])
        if content["format"] != FORMAT:
            raise UserError(
                f"{path} is of format {shown(content['format'])}, and this version reads {FORMAT}; export it again"
            )
        layout: Layout = typed(Layout, content)
        if min(layout.chunk, layout.max_tokens_per_frame) < 1:
            raise ValueError("chunk and max_tokens_per_frame must be 1 or more")
        if layout.blank != BLANK:
            raise ValueError(f"its blank must be {BLANK}")
        require_tail(f"{path}: tail_padding", layout.tail_padding)
        if layout.front_end is None and layout.framing != FILTER_BANKS:
            raise ValueError("its framing is not that of filter banks, and it has no front_end")
        return layout
    except OSError:
        raise UserError(f"{folder} holds no exported system (no {METADATA}); make one with export.py") from None
    except (ValueError, KeyError) as error:
        raise UserError(f"{path} does not describe an exported system ({error}); export it again") from error
