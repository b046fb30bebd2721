"""When words come out: expected emission times of reference tokens, and when a live recogniser shows words.

Emission times are those of the paper's appendix C: the reference is aligned to the audio by the system itself, over all
alignments, so that systems can be compared on the same tokens whatever they would recognise. The normaliser Z is the
same for all alignments and drops out. Times are in seconds from the beginning; the delay by the chunk is not in
them, that by the front end's right context is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from transducer_gn.config import RecognitionConfig
from transducer_gn.data.batches import Batch
from transducer_gn.lattice.emission import emission_times
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.lattice.tree_lattice import tree_lattice
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.transducer import Transducer
from transducer_gn.recognition.display_policy import Shown
from transducer_gn.recognition.stability import display_times
from transducer_gn.recognition.system import System
from transducer_gn.recognition.utterances import show


@dataclass(frozen=True)
class UtteranceTimes:
    """Times of one utterance in seconds; None for what never comes.

    Attributes:
        group: emission times are also given for each group apart
        tokens: pieces of the reference
        emitted: when each token is expected
        shown: for each word of the reference that is right in the end, when it was first shown there; empty where no
            live recogniser was run
        settled: the same, from when on it stayed
        custom: what the manifest says besides about the utterance
        text: words of the reference
        ends: when each of them truly ends, where the corpus has alignments; otherwise empty
        duration: of the audio; 0 in files of earlier versions
        history: what the live recogniser showed; empty where none was run
    """

    id: str
    group: str
    tokens: list[str]
    emitted: list[float | None]
    shown: list[float | None]
    settled: list[float | None]
    custom: Mapping[str, Any] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    duration: float = 0.0
    history: list[Shown] = field(default_factory=list)

    def __post_init__(self) -> None:
        # As files have them.
        moments = [moment if isinstance(moment, Shown) else Shown(**moment) for moment in self.history]
        object.__setattr__(self, "history", moments)


@torch.no_grad()
def measure_times(
    system: System,
    batch: Batch,
    chunk: Chunk,
    display: RecognitionConfig | None,
    ends: Mapping[str, list[float]] = MappingProxyType({}),
) -> list[UtteranceTimes]:
    """Times of all utterances of a batch, which is on the system's device.

    Args:
        chunk: what frames see when the reference is aligned
        display: how the live recogniser runs; None to leave it out
        ends: when the words of an utterance truly end, by its id, where that is known
    """
    encoder_out, frame_lengths = system.model.encode(batch.features, batch.feature_lengths, chunk)
    weights = reference_weights(
        system.model, encoder_out, frame_lengths, batch.tokens, batch.token_lengths, system.alpha
    )
    frames = emission_times(*weights, batch.token_lengths, frame_lengths).double()
    seconds = system.model.encoder.framing.emission_seconds(frames)
    histories: list[list[Shown]] = [[] for _ in batch.ids]
    if display is not None:
        histories = show(system, batch, display)
    pieces = system.tokenizer.pieces
    results = []
    for i, (tokens, length) in enumerate(zip(batch.tokens.tolist(), batch.token_lengths.tolist(), strict=True)):
        own = [pieces[token] for token in tokens[:length]]
        shown, settled = display_times(batch.texts[i].split(), histories[i]) if histories[i] else ([], [])
        results.append(
            UtteranceTimes(
                id=batch.ids[i],
                group=batch.groups[i],
                tokens=own,
                emitted=[None if time != time else time for time in seconds[i, :length].tolist()],
                shown=shown,
                settled=settled,
                custom=batch.custom[i],
                text=batch.texts[i].split(),
                ends=ends.get(batch.ids[i], []),
                duration=round(float(batch.durations[i]), 6),
                history=histories[i],
            )
        )
    return results


def reference_weights(
    model: Transducer, encoder_out: Tensor, frame_lengths: Tensor, tokens: Tensor, token_lengths: Tensor, alpha: float
) -> tuple[Tensor, Tensor]:
    """Interpolated weights of the arcs of the references' lattices.

    Args:
        model: the system's
        encoder_out: [B, T, D] encoder frames
        frame_lengths: [B] number of frames of each utterance
        tokens: [B, U] references
        token_lengths: [B] their numbers of tokens
        alpha: interpolation weight

    Returns:
        (token_weights [B, U, T], blank_weights [B, U + 1, T])
    """
    tree = build_prefix_tree(tokens[:, None], token_lengths[:, None])
    outputs = model.predictor.unroll_tree(tree.parents, tree.tokens, tree.depths)
    lattice = tree_lattice(model.joiner.lattice_inputs(encoder_out, frame_lengths, outputs), tree)
    return Interpolation(alpha).arcs(*lattice.reference_arcs())
