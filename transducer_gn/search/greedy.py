"""Greedy search: the best label at every point.

The predictor does not move between two tokens. So each turn takes, for every utterance, the next few frames from where
that utterance is, as if nothing were emitted in them; its way is then known up to the first token among their best
labels, and the predictor reads all these tokens in one call. Utterances go on at their own pace.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.model.constants import constant
from transducer_gn.model.predictor import State
from transducer_gn.search.hypotheses import NBest, check_faulty, check_frames
from transducer_gn.search.prefixes import SearchedModel, reader_of

# Frames to look at in one turn. About every fourth frame has a token; what was computed beyond it is thrown away.
WINDOW = 5


@dataclass(slots=True)
class Way:
    """How far an utterance has come.

    Attributes:
        length: number of frames of the utterance
        frame: the frame that it is at
        emitted: number of tokens emitted at this frame
        tokens: all tokens so far
        times: the frames at which they were emitted
        score: sum of the weights of all labels
        faulty: whether a weight was NaN or infinitely large
    """

    length: int
    frame: int = 0
    emitted: int = 0
    tokens: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    score: float = 0.0
    faulty: bool = False


@torch.no_grad()
def greedy_search(
    model: SearchedModel,
    encoder_out: Tensor,
    frame_lengths: Tensor,
    alpha: float | None = None,
    max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME,
) -> NBest:
    """One token sequence per utterance: at every point the label of largest weight, of equal ones the smallest id.

    After `max_tokens_per_frame` tokens a frame ends with its blank, whatever that weighs.

    Args:
        model: a predictor and a joiner
        encoder_out: [B, T, D]
        frame_lengths: [B] number of frames of each utterance; what lies beyond is ignored
        alpha: weight of local normalisation in the score of the one alignment; it does not affect which labels are
            chosen. None if nobody needs scores, which are then NaN: they are half of the work
        max_tokens_per_frame: most tokens between two blanks
    """
    if max_tokens_per_frame < 1:
        raise ValueError(f"max_tokens_per_frame must be at least 1, not {max_tokens_per_frame}")
    interpolation = None if alpha is None else Interpolation(alpha)
    lengths = check_frames(encoder_out, frame_lengths)
    search = GreedySearch(model, encoder_out, interpolation, max_tokens_per_frame)
    ways = [Way(length) for length in lengths]
    while turn := [b for b, way in enumerate(ways) if way.frame < way.length]:
        search.turn(ways, turn)
    check_faulty([way.faulty for way in ways])
    scores = [[way.score if interpolation else float("nan")] for way in ways]
    return NBest([[way.tokens] for way in ways], scores, [[way.times] for way in ways])


class GreedySearch:
    """The search over the utterances of one batch."""

    def __init__(
        self,
        model: SearchedModel,
        encoder_out: Tensor,
        interpolation: Interpolation | None,
        max_tokens_per_frame: int,
    ) -> None:
        self._joiner, self._reader = constant(model.joiner, "quick"), reader_of(model)
        self._interpolation = interpolation
        self._max_tokens_per_frame = max_tokens_per_frame
        frames = self._joiner.project_encoder(encoder_out)
        self._longest = frames.shape[1]
        self._frames = frames.flatten(0, 1)
        batch = len(encoder_out)
        state = self._reader.initial_state(batch)
        start_symbols = torch.full((batch,), BLANK, dtype=torch.long, device=state[0].device)
        self._outputs, self._state = self._reader.read(start_symbols, state)

    def turn(self, ways: list[Way], turn: list[int]) -> None:
        """Take the utterances `turn` up to their next tokens, or over a window of frames without any."""
        counts = [min(WINDOW, ways[b].length - ways[b].frame) for b in turn]
        logits = self._logits(ways, turn, counts)
        # Utterances that have emitted enough at their frame must take its blank.
        full = [place for place, b in enumerate(turn) if ways[b].emitted == self._max_tokens_per_frame]
        best, labels = (part.tolist() for part in logits.max(-1))
        starts = [sum(counts[:place]) for place in range(len(turn))] if len(turn) > 1 else [0]
        for place in full:
            labels[starts[place]] = BLANK
        weights = self._weights(self._interpolation, logits, labels) if self._interpolation else None
        emitting, tokens = [], []
        for b, start, count in zip(turn, starts, counts, strict=True):
            token = self._follow(ways[b], labels[start : start + count], best[start : start + count])
            if weights:
                last = start + count if token is None else start + token[0] + 1
                ways[b].score += sum(weights[start:last])
            if token is not None:
                emitting.append(b)
                tokens.append(token[1])
        if emitting:
            self._read(emitting, tokens)

    def _logits(self, ways: list[Way], turn: list[int], counts: list[int]) -> Tensor:
        """Logits [n, V] of the next `counts` frames of the utterances `turn`, one utterance after the other."""
        if len(turn) == 1:
            b = turn[0]
            start = b * self._longest + ways[b].frame
            return self._joiner(self._frames[start : start + counts[0]], self._outputs[b])
        first = [b * self._longest + ways[b].frame for b in turn]
        frames = [start + i for start, count in zip(first, counts, strict=True) for i in range(count)]
        owners = [b for b, count in zip(turn, counts, strict=True) for _ in range(count)]
        return self._joiner(
            self._frames.index_select(0, self._indices(frames)), self._outputs.index_select(0, self._indices(owners))
        )

    def _weights(self, interpolation: Interpolation, logits: Tensor, labels: list[int]) -> list[float]:
        """The interpolated weights of one label at each of n points, from logits [n, V]."""
        log_sums = logits.logsumexp(-1)
        log_sums = log_sums.where(log_sums > -torch.inf, 0)
        chosen = logits.gather(1, self._indices(labels)[:, None])[:, 0]
        return interpolation.weights(chosen, log_sums).tolist()

    def _follow(self, way: Way, labels: list[int], best: list[float]) -> tuple[int, int] | None:
        """Go along labels, one for each frame from where `way` is, up to the first token.

        Returns:
            how many frames after the first the token was emitted, and the token; None if there was none
        """
        for passed, (label, weight) in enumerate(zip(labels, best, strict=True)):
            # Also catches NaN, which counts as the largest weight.
            way.faulty |= not weight < torch.inf
            if label != BLANK:
                way.tokens.append(label)
                way.times.append(way.frame)
                way.emitted += 1
                return passed, label
            way.frame += 1
            way.emitted = 0
        return None

    def _read(self, utterances: list[int], tokens: list[int]) -> None:
        """Let the predictor read one token of each of some utterances."""
        symbols = self._indices(tokens)
        if len(utterances) == len(self._outputs):
            self._outputs, self._state = self._reader.read(symbols, self._state)
            return
        rows = self._indices(utterances)
        outputs, state = self._reader.read(symbols, _rows(self._state, rows))
        self._outputs = self._outputs.index_copy(0, rows, outputs)
        self._state = tuple(part.index_copy(0, rows, new) for part, new in zip(self._state, state, strict=True))

    def _indices(self, numbers: list[int]) -> Tensor:
        """Numbers [n] where the frames are."""
        return torch.tensor(numbers, dtype=torch.long, device=self._frames.device)


def _rows(state: State, rows: Tensor) -> State:
    """The rows [n] of a predictor's state."""
    return tuple(part.index_select(0, rows) for part in state)
