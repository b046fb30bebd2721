"""The beam search for accelerators: the rules of `transducer_gn.search.beam` in few operations of fixed shapes.

What costs on an accelerator is not to multiply but to launch. So a frame is a handful of steps on tensors whose shapes
never change and that are written in place, ready to be captured as graphs:

    begin        round 0: joiner, blanks, the K most promising extensions of every utterance
    extend(s)    round s: predictor, joiner, blanks, merging, and again the K most promising extensions
    end(s)       the K best of all columns that rounds 0 .. s have finished

After each round the host looks at one number, whether any utterance has an extension that is promising enough, and
leaves out the rounds that nobody needs: a look costs what three launches cost, a round more than thirty.

Hypotheses of the frame stand in columns: those of round s in columns s * K to (s + 1) * K. What became of them is
recorded frame by frame (which columns survived, which column and token each one came from) and read backwards at the
end; nothing is carried along. Whether two prefixes are the same is told by fingerprints of 64 bits: an utterance
compares some hundred thousand of them, and takes two different ones for the same with a probability below 1e-13.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.model.constants import constant
from transducer_gn.model.predictor import State
from transducer_gn.search.hypotheses import NBest, check_faulty
from transducer_gn.search.prefixes import SearchedModel

# An odd number without structure: a fingerprint is multiplied by it for every token that follows.
MULTIPLIER = -0x61C8864680B583EB


class Rows:
    """What the predictor said about n prefixes, in as few tensors [n, ...] as there are types."""

    def __init__(self, parts: State) -> None:
        self._shapes = [part.shape[1:] for part in parts]
        self._dtypes = [part.dtype for part in parts]

    def pack(self, parts: State) -> dict[torch.dtype, Tensor]:
        """The parts, each [n, ...], side by side [n, D]."""
        groups = {dtype: [p.flatten(1) for p in parts if p.dtype == dtype] for dtype in dict.fromkeys(self._dtypes)}
        return {dtype: torch.cat(group, dim=1) for dtype, group in groups.items()}

    def unpack(self, packed: dict[torch.dtype, Tensor]) -> State:
        """The parts, each [n, ...], as views."""
        starts, parts = dict.fromkeys(packed, 0), []
        for shape, dtype in zip(self._shapes, self._dtypes, strict=True):
            start, size = starts[dtype], shape.numel()
            parts.append(packed[dtype][:, start : start + size].unflatten(1, shape) if shape else packed[dtype][:, start])
            starts[dtype] = start + size
        return tuple(parts)


@dataclass
class Frame:
    """The tensors that a search over B utterances works on; C = (S + 1) * K columns. All are overwritten in place.

    Attributes:
        scores: [B, K] of the beam, relative to the best; -inf in slots without a hypothesis
        offsets: [B] score of the best, in double precision; NaN once the model was at fault
        finished: [B, C] scores after this frame's blank; -inf in columns without a hypothesis, or merged into another
        fingerprints: [B, C] of the prefixes
        sources: [B, C] the column that tells how the best alignment of a hypothesis went
        promises: [B, K] of the extensions that come next, or -inf where there is none
        choices: [B, K] which of the extensions [K * V] they are
        totals: [B, K * V] scores of the extensions
        parents: [S, B, K] the slot of the round before that each hypothesis of a round came from
        tokens: [S, B, K] its last token
        chosen: [B, K] the columns that make up the next beam
    """

    scores: Tensor
    offsets: Tensor
    finished: Tensor
    fingerprints: Tensor
    sources: Tensor
    promises: Tensor
    choices: Tensor
    totals: Tensor
    parents: Tensor
    tokens: Tensor
    chosen: Tensor


class DeviceSearch:
    """A search over B utterances of one model.

    Args:
        model: a predictor and a joiner
        batch: B
        beam: K, hypotheses kept per utterance
        interpolation: the normalisation
        max_tokens_per_frame: S
    """

    def __init__(
        self, model: SearchedModel, batch: int, beam: int, interpolation: Interpolation, max_tokens_per_frame: int
    ) -> None:
        self._predictor, self._joiner = constant(model.predictor, fused=True), constant(model.joiner, fused=True)
        self._batch, self._beam, self._most = batch, beam, max_tokens_per_frame
        self._interpolation = interpolation
        state = self._predictor.initial_state(batch * beam)
        device = state[0].device
        start_symbols = torch.full((batch * beam,), BLANK, dtype=torch.long, device=device)
        output, state = self._predictor.step(start_symbols, state)
        parts = (self._joiner.project_predictor(output), *state)
        self._rows = Rows(parts)
        self._round_rows: list[dict[torch.dtype, Tensor]] = [self._rows.pack(parts)]
        self._own = torch.arange((self._most + 1) * beam, device=device).expand(batch, -1)
        self._starts = torch.arange(batch, device=device)[:, None]
        self.frame = self._start(parts[0])

    def _start(self, outputs: Tensor) -> Frame:
        """The empty prefix in the first slot of every utterance; `outputs` [B * K, J] tell type and device."""
        batch, beam, most = self._batch, self._beam, self._most
        scores = outputs.new_full((batch, beam), -torch.inf)
        scores[:, 0] = 0
        numbers = torch.zeros(batch, beam, dtype=torch.long, device=outputs.device)
        return Frame(
            scores=scores,
            offsets=torch.zeros(batch, dtype=torch.double, device=outputs.device),
            finished=outputs.new_full((batch, (most + 1) * beam), -torch.inf),
            fingerprints=numbers.repeat(1, most + 1),
            sources=self._own.clone(),
            promises=scores.clone(),
            choices=numbers.clone(),
            totals=outputs.new_zeros(0),
            parents=numbers.repeat(most, 1, 1),
            tokens=numbers.repeat(most, 1, 1),
            chosen=numbers.clone(),
        )

    def begin(self, encoded: Tensor) -> Tensor:
        """Round 0 at a frame [B, J]; tells [] whether there is anything to extend."""
        frame, beam = self.frame, self._beam
        frame.finished[:, beam:] = -torch.inf
        outputs = self._rows.unpack(self._round_rows[0])[0]
        totals, log_sums = self._weigh(encoded, outputs, frame.scores)
        frame.finished[:, :beam] = totals[:, :, BLANK]
        return self._choose(totals, log_sums, 1)

    def extend(self, encoded: Tensor, step: int) -> Tensor:
        """Round `step` at a frame [B, J]; tells [] whether there is anything to extend in turn."""
        frame, beam = self.frame, self._beam
        before = slice((step - 1) * beam, step * beam)
        new = slice(step * beam, (step + 1) * beam)
        parents, tokens = frame.parents[step - 1], frame.tokens[step - 1]
        vocabulary = frame.totals.shape[1] // beam
        torch.floor_divide(frame.choices, vocabulary, out=parents)
        torch.remainder(frame.choices, vocabulary, out=tokens)
        scores = frame.totals.gather(1, frame.choices).where(frame.promises > -torch.inf, -torch.inf)
        torch.add(
            tokens, frame.fingerprints[:, before].gather(1, parents), alpha=MULTIPLIER, out=frame.fingerprints[:, new]
        )
        rows = torch.add(parents, self._starts, alpha=beam).flatten()
        _, *state = self._rows.unpack({dtype: part.index_select(0, rows) for dtype, part in self._round_rows[step - 1].items()})
        output, state = self._predictor.step(tokens.flatten(), tuple(state))
        outputs = self._joiner.project_predictor(output)
        self._keep_rows(step, self._rows.pack((outputs, *state)))
        totals, log_sums = self._weigh(encoded, outputs, scores)
        self._merge(totals[:, :, BLANK], step)
        return self._choose(totals, log_sums, step + 1)

    def end(self, step: int) -> None:
        """The best columns of rounds 0 to `step` as the next beam."""
        frame, beam = self.frame, self._beam
        columns = (step + 1) * beam
        finished = frame.finished[:, :columns]
        frame.chosen.copy_(finished.float().sort(dim=1, descending=True, stable=True).indices[:, :beam])
        best = finished.gather(1, frame.chosen)
        # A beam without any hypothesis stays where it is.
        top = best[:, :1].nan_to_num(nan=torch.nan, posinf=torch.inf, neginf=0)
        torch.sub(best, top, out=frame.scores)
        frame.offsets.add_(top[:, 0])
        frame.fingerprints[:, :beam] = frame.fingerprints.gather(1, frame.chosen)
        slots = frame.chosen
        # Rows of all rounds, one round after the other: column s * K + k of utterance b is row s * B * K + b * K + k.
        rows = slots + self._starts * beam
        if step > 0:
            rows = rows + (slots // beam) * ((self._batch - 1) * beam)
        for dtype, part in self._round_rows[0].items():
            rounds = [own[dtype] for own in self._round_rows[: step + 1]]
            everything = torch.cat(rounds) if step > 0 else part
            part.copy_(everything.index_select(0, rows.flatten()))

    def _keep_rows(self, step: int, packed: dict[torch.dtype, Tensor]) -> None:
        """What the predictor said in round `step`."""
        del self._round_rows[step:]
        self._round_rows.append(packed)

    def _weigh(self, encoded: Tensor, outputs: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [B, K, V] after each arc of hypotheses with scores [B, K], and the log-sums [B, K] of their points.

        Args:
            encoded: [B, J] the frame
            outputs: [B * K, J] predictor outputs, projected
            scores: [B, K]
        """
        logits = self._joiner(encoded[:, None], outputs.unflatten(0, scores.shape))
        # NaN says that the model is at fault, and soon takes hold of the utterance's offset.
        log_sums = logits.logsumexp(-1).nan_to_num_(nan=torch.nan, posinf=torch.nan, neginf=0)
        return logits + self._interpolation.weights(scores, log_sums)[:, :, None], log_sums

    def _choose(self, totals: Tensor, log_sums: Tensor, step: int) -> Tensor:
        """The extensions [B, K] for round `step`; tells [] whether there are any.

        Args:
            totals: [B, K, V] scores after each arc; that of the blank is overwritten
            log_sums: [B, K]
        """
        if step > self._most:
            return totals.new_zeros((), dtype=torch.bool)
        frame, beam = self.frame, self._beam
        totals[:, :, BLANK] = -torch.inf
        frame.totals = totals.flatten(1)
        promises = totals
        if not self._interpolation.is_local:
            promises = torch.add(totals, log_sums[:, :, None], alpha=1 - self._interpolation.alpha)
        best, choices = promises.flatten(1).float().sort(dim=1, descending=True, stable=True)
        finished = frame.finished[:, : step * beam].float()
        threshold = finished.amin(1, keepdim=True) if step == 1 else finished.topk(beam).values[:, -1:]
        best = best[:, :beam]
        torch.where(best > threshold, best, -torch.inf, out=frame.promises)
        frame.choices.copy_(choices[:, :beam])
        return frame.promises.amax() > -torch.inf

    def _merge(self, blanks: Tensor, step: int) -> None:
        """Finish round `step` with scores [B, K] after its blanks; equal prefixes are merged by log-add."""
        frame, beam = self.frame, self._beam
        columns = step * beam
        new = slice(columns, columns + beam)
        before = frame.finished[:, :columns]
        fingerprints = frame.fingerprints[:, :columns]
        # [B, K, columns]; at most one is true for a column, and at most one for a new hypothesis.
        same = (frame.fingerprints[:, new, None] == fingerprints[:, None]) & (before > -torch.inf)[:, None]
        added, slots = torch.where(same, blanks[:, :, None], -torch.inf).max(1)
        # Compared as all scores are, in single precision.
        better = added.float() > before.float()
        frame.sources[:, :columns] = torch.where(better, slots + columns, frame.sources[:, :columns])
        torch.logaddexp(before, added, out=before)
        frame.finished[:, new] = torch.where(same.any(2), -torch.inf, blanks)


class History:
    """What happened at every frame of a search, on the device, and how to read it backwards on the host."""

    def __init__(self, frame: Frame, frames: int) -> None:
        self._frame = frame
        most, batch, beam = frame.parents.shape
        # Columns that survived, their sources; slots and tokens of each round.
        self._steps = frame.parents.new_zeros(frames, 2 + 2 * most, batch, beam)
        self._scores = frame.offsets.new_zeros(frames + 1, batch, beam)
        self._scores[0] = frame.scores

    def record(self, t: int) -> None:
        """Keep what frame t has left."""
        frame = self._frame
        sources = frame.sources.gather(1, frame.chosen)
        torch.cat([frame.chosen[None], sources[None], frame.parents, frame.tokens], out=self._steps[t])
        torch.add(frame.scores, frame.offsets[:, None], out=self._scores[t + 1])

    def read(self, lengths: list[int]) -> NBest:
        """The hypotheses after the last frames of the utterances, in the order of the beam. Synchronises."""
        steps, scores = self._steps.cpu().numpy(), self._scores.cpu().numpy()
        last = scores[lengths, np.arange(len(lengths))]
        check_faulty(np.isnan(last).any(1).tolist())
        exists = last > -np.inf
        exists[:, 0] = True
        tokens, times = _read_backwards(steps, np.array(lengths))
        kept = [(b, k) for b, k in zip(*exists.nonzero(), strict=True)]
        nbest = NBest([[] for _ in lengths], [[] for _ in lengths], [[] for _ in lengths])
        for b, k in kept:
            alive = last[b, k] > -np.inf
            own = tokens[b, k] > 0
            nbest.tokens[b].append(tokens[b, k][own].tolist() if alive else [])
            nbest.times[b].append(times[b, k][own].tolist() if alive else [])
            nbest.scores[b].append(float(last[b, k]))
        return nbest


def _read_backwards(steps: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [B, K, T * S] of the hypotheses after the last frames, 0 where there is none, and their times.

    Args:
        steps: [T, 2 + 2 * S, B, K] what `History` keeps
        lengths: [B] numbers of frames
    """
    frames, rows, batch, beam = steps.shape
    most = (rows - 2) // 2
    tokens = np.zeros((frames, most, batch, beam), dtype=np.int64)
    utterances = np.arange(batch)[:, None]
    slots = np.tile(np.arange(beam), (batch, 1))
    token_slots = slots
    for t in reversed(range(frames)):
        running = (t < lengths)[:, None]
        chosen, sources = steps[t, 0], steps[t, 1]
        # The tokens of a hypothesis are those of its column; their times are those of the column's source.
        columns = np.where(running, sources[utterances, slots], slots)
        rounds, slots = columns // beam, columns % beam
        for step in reversed(range(1, most + 1)):
            inside = (rounds >= step) & running
            parents, emitted = steps[t, 1 + step], steps[t, 1 + most + step]
            tokens[t, step - 1] = np.where(inside, emitted[utterances, slots], 0)
            slots = np.where(inside, parents[utterances, slots], slots)
    times = np.broadcast_to(np.arange(frames)[:, None, None, None], tokens.shape)
    shape = (batch, beam, frames * most)
    return tokens.transpose(2, 3, 0, 1).reshape(shape), times.transpose(2, 3, 0, 1).reshape(shape)
