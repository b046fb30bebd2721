"""What a runtime has to know about an exported system: one JSON file beside its graphs."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import Framing
from transducer_gn.common.json_files import write_json
from transducer_gn.common.units import BLANK, SAMPLING_RATE

FORMAT = 1
METADATA = "metadata.json"
TOKENS = "tokens.txt"
TOKEN_MODEL = "tokenizer.model"
PARTS = ("encoder", "predictor", "joiner")
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
    blank: int = BLANK
    sampling_rate: int = SAMPLING_RATE
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Write the file into a folder."""
        write_json(folder / METADATA, asdict(self))


def read_layout(folder: Path) -> Layout:
    """Read the file of a folder; UserError if there is none that this version understands."""
    path = folder / METADATA
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise UserError(
                f"{path} is of format {content['format']}, and this version reads {FORMAT}; export it again"
            )
        framing = Framing(**content.pop("framing"))
        state = [StateTensor(**tensor) for tensor in content.pop("predictor_state")]
        return Layout(**content, framing=framing, predictor_state=state)
    except OSError:
        raise UserError(f"{folder} holds no exported system (no {METADATA}); make one with export.py") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} does not describe an exported system; export it again") from error
