"""Writing a trained system as ONNX files, and as int8 beside them."""

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import onnx

from transducer_gn.common.errors import UserError, require
from transducer_gn.common.files import replace_when_done
from transducer_gn.config import RecognitionConfig
from transducer_gn.data.tokenizer import save_tokenizer
from transducer_gn.export.encoder_graph import write_encoder
from transducer_gn.export.moonshine_graph import write_front_end
from transducer_gn.export.token_graphs import write_joiner, write_predictor
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.moonshine_features import MoonshineFeatures
from transducer_gn.recognition.system import System
from transducer_gn.runtime.filter_banks import RECIPE
from transducer_gn.runtime.layout import METADATA, SUFFIXES, FrontEndLayout, Layout, StateTensor


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        layout: what a runtime has to know
        sizes: bytes of each graph by file name
    """

    layout: Layout
    sizes: dict[str, int]


def export_system(system: System, folder: Path, settings: RecognitionConfig, int8: bool = False) -> Exported:
    """Write all files of a system into a folder; UserError if it is of a kind that cannot be exported.

    Args:
        system: what to export
        folder: where to; it is made
        settings: the chunk and left context, which become part of the files, and tokens per frame
        int8: whether to write graphs with weights of eight bits, too
    """
    chunk = exportable_chunk(system, settings)
    assert chunk.size is not None and chunk.left is not None  # or it was refused
    graphs = [
        write_encoder(system.model, chunk.size, chunk.left),
        write_predictor(system.model),
        write_joiner(system.model.joiner, Interpolation(system.alpha)),
    ]
    if system.model.front_end is not None:
        graphs.append(write_front_end(system.model.front_end))
    layout = layout_of(system, settings, chunk, ["float32", "int8"] if int8 else ["float32"])
    properties = {
        "producer": "transducer_gn",
        "name": system.name,
        "alpha": f"{system.alpha:g}",
        "normalised": "false: weights are added up as they are",
    }
    models = {part: graph.model(properties | {"part": part}) for part, graph in zip(layout.parts, graphs, strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    # Where the description is, everything else is.
    (folder / METADATA).unlink(missing_ok=True)
    sizes = {}
    for part, model in models.items():
        for precision in layout.precisions:
            path = folder / f"{part}{SUFFIXES[precision]}"
            with replace_when_done(path) as sibling:
                onnx.save(model, sibling)
                if precision == "int8":
                    quantise(sibling)
            sizes[path.name] = path.stat().st_size
    save_tokenizer(system.tokenizer, folder)
    layout.write(folder)
    return Exported(layout, sizes)


def exportable_chunk(system: System, settings: RecognitionConfig) -> Chunk:
    """The chunk to export; UserError where something of the system has no graph yet."""
    chunk = system.chunk(settings)
    if chunk.size is None:
        raise UserError("--chunk: an exported system runs chunk by chunk, and this one has no chunks; give a size")
    require(
        chunk.left is not None,
        "--left-context",
        "an exported system has a memory of fixed size; give a number of frames, a multiple of the chunk",
    )
    return chunk


def layout_of(system: System, settings: RecognitionConfig, chunk: Chunk, precisions: list[str]) -> Layout:
    """What a runtime has to know."""
    encoder = system.config.model.encoder
    state = system.model.predictor.initial_state(1)
    names = ("hidden", "cell") if len(state) == 2 else ("context",)
    assert chunk.size is not None and chunk.left is not None
    return Layout(
        name=system.name,
        alpha=system.alpha,
        vocab_size=system.model.vocab_size,
        max_tokens_per_frame=system.tokens_per_frame(settings),
        chunk=chunk.size,
        left_context=chunk.left,
        framing=system.model.encoder.framing,
        memory=[encoder.layers, chunk.left, 2 * encoder.attention_dim],
        history=[encoder.layers, encoder.kernel - 1, encoder.dim],
        predictor_state=[
            StateTensor(name, list(part.shape[1:]), "float32" if part.dtype.is_floating_point else "int64")
            for name, part in zip(names, state, strict=True)
        ],
        precisions=precisions,
        features=RECIPE if system.model.front_end is None else {"kind": "vectors of the graph front_end"},
        front_end=front_end_layout(system.model.front_end),
        tail_padding=len(system.tail(settings)),
    )


def front_end_layout(front_end: MoonshineFeatures | None) -> FrontEndLayout | None:
    """What a runtime has to know about a pretrained front end."""
    if front_end is None:
        return None
    shape, context = front_end.encoder.shape, front_end.context
    assert context.chunk is not None  # without, the system has no chunks either
    return FrontEndLayout(
        kind="moonshine-tiny",
        chunk=context.chunk,
        right=context.right,
        left_chunks=context.left,
        window=context.longest_window,
        width=len(front_end.standardisation.mean),
        memory=[max(front_end.layers), shape.heads, 2 * shape.dim // shape.heads],
    )


def quantise(path: Path) -> None:
    """Turn the weights of a graph's linear layers into eight bits, in place; what they multiply follows as it runs."""
    # Needs onnx, which the runtime alone does not.
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(path).graph
    layers = {constant.name for constant in graph.initializer if len(constant.dims) == 2}
    chosen = [node.name for node in graph.node if node.op_type == "MatMul" and node.input[1] in layers]
    quiet = logging.getLogger()
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # it advises a preparation that these graphs do not need
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quantize_dynamic(path, path, nodes_to_quantize=chosen, weight_type=QuantType.QInt8, per_channel=True)
    finally:
        quiet.setLevel(level)
