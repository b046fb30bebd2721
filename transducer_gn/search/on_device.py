"""The beam search for accelerators: the rules of `transducer_gn.search.beam` in few operations of fixed shapes.

What costs on an accelerator is not to multiply but to launch. So a frame is a handful of steps on tensors whose shapes
never change and that are written in place, ready to be captured as graphs:

    begin        round 0: joiner, blanks, the K most promising extensions of every utterance
    extend(s)    round s: predictor, joiner, blanks, merging, and again the K most promising extensions
    end(s)       the K best of all columns that rounds 0 .. s have finished

After each round the host looks at one number, whether any utterance has an extension that is promising enough, and
leaves out the rounds that nobody needs: a look costs what three launches cost, a round more than thirty.

Hypotheses of a frame stand in columns: those of round s in columns s * K to (s + 1) * K. What became of them is
recorded frame by frame (which columns survived, which slot and token each one came from) and read backwards on the
host at the end; nothing is carried along. Whether two prefixes are the same is told by fingerprints of 64 bits: an
utterance compares some hundred thousand of them, and takes two different ones for the same with a probability below
1e-13. Utterances that have ended are carried on, since shapes do not change, and read from where they ended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.model.constants import constant
from transducer_gn.model.predictor import State
from transducer_gn.search.prefixes import SearchedModel
from transducer_gn.search.rules import SearchRules

# An odd number without structure: a fingerprint is multiplied by it for every token that follows.
MULTIPLIER = -0x61C8864680B583EB


Planes = dict[tuple[torch.dtype, int], Tensor]


class RowLayout:
    """How what the predictor said about prefixes is packed into as few tensors as possible.

    Each part [n, ..., W] is a number of planes [n, W]; planes of one type and width stand one after the other. With the
    planes first, the layers of an LSTM are where its kernels want them.
    """

    def __init__(self, parts: State) -> None:
        self._shapes = [part.shape[1:] for part in parts]
        self._kinds = [(part.dtype, part.shape[-1] if part.dim() > 1 else 1) for part in parts]

    def empty(self, parts: State) -> Planes:
        """Planes [P, n, W] for parts [n, ..., W]."""
        counts = dict.fromkeys(self._kinds, 0)
        for shape, kind in zip(self._shapes, self._kinds, strict=True):
            counts[kind] += shape[:-1].numel()
        return {
            kind: parts[0].new_empty(count, len(parts[0]), kind[1], dtype=kind[0]) for kind, count in counts.items()
        }

    def pack(self, parts: State, planes: Planes) -> None:
        """Write parts [n, ..., W] to planes [P, n, W]."""
        groups: dict[tuple[torch.dtype, int], list[Tensor]] = {kind: [] for kind in self._kinds}
        for kind, shape, part in zip(self._kinds, self._shapes, parts, strict=True):
            own = part.movedim(0, -2).flatten(0, -3) if len(shape) > 1 else part.unflatten(0, (1, -1))
            groups[kind].append(own if shape else own[:, :, None])
        for kind, group in groups.items():
            _into(planes[kind], torch.cat, group)

    def unpack(self, planes: Planes) -> State:
        """From planes [P, n, W] to parts [n, ..., W], as views."""
        starts, parts = dict.fromkeys(planes, 0), []
        for shape, kind in zip(self._shapes, self._kinds, strict=True):
            count = shape[:-1].numel()
            own = planes[kind][starts[kind] : starts[kind] + count]
            starts[kind] += count
            if len(shape) > 1:
                parts.append(own.unflatten(0, shape[:-1]).movedim(-2, 0))
            else:
                parts.append(own[0] if shape else own[0, :, 0])
        return tuple(parts)


@dataclass
class Frame:
    """The tensors that a search over B utterances works on; C = (S + 1) * K columns. All are overwritten in place.

    Attributes:
        encoded: [B, J] the frame, projected for the joiner
        scores: [B, K] of the beam, relative to the best; -inf in slots without a hypothesis
        offsets: [B] score of the best, in double precision; NaN once the model was at fault
        finished: [B, C] scores after this frame's blank; -inf in columns without a hypothesis, or merged into another
        fingerprints: [B, C] of the prefixes, as far as they are not merged into another column
        newest: [B, K] the same for the prefixes of the last round, all of them
        sources: [B, C] the column that tells how the best alignment of a hypothesis went
        totals: [B, K * V] scores of the extensions that come next
        choices: [B, K] which of these are the most promising; a blank, of score -inf, where there is none
        record: [1 + 2 * S, B, K] what is needed to read the way of hypotheses backwards: first the sources of those
            that make up the next beam, then for each round the slots of the round before that hypotheses came from,
            then for each round their last tokens
    """

    encoded: Tensor
    scores: Tensor
    offsets: Tensor
    finished: Tensor
    fingerprints: Tensor
    newest: Tensor
    sources: Tensor
    totals: Tensor
    choices: Tensor
    record: Tensor


class DeviceSearch:
    """A search over B utterances of one model, whose parameters count as constants from now on.

    Args:
        model: a predictor and a joiner
        batch: B
        rules: K, S and the normalisation
    """

    def __init__(self, model: SearchedModel, batch: int, rules: SearchRules) -> None:
        self._predictor, self._joiner = constant(model.predictor, "fused"), constant(model.joiner, "fused")
        self._interpolation = rules.interpolation
        self.beam, self.rounds = rules.beam, rules.max_tokens_per_frame
        beam = self.beam
        state = self._predictor.initial_state(batch * beam)
        start_symbols = torch.full((batch * beam,), BLANK, dtype=torch.long, device=state[0].device)
        output, state = self._predictor.step(start_symbols, state)
        outputs = self._joiner.project_predictor(output)
        self._layout = RowLayout((outputs, *state))
        # What the predictor said about the hypotheses of each round.
        self._said = [self._layout.empty((outputs, *state)) for _ in range(self.rounds + 1)]
        self._layout.pack((outputs, *state), self._said[0])
        self._vocabulary = self._joiner(outputs[:1], outputs[:1]).shape[-1]
        self._columns = torch.arange((self.rounds + 1) * beam, device=outputs.device).expand(batch, -1)
        self._never = outputs.new_full((), -torch.inf)
        self._blanks = self._columns[:, :beam] * self._vocabulary
        # Fingerprints of columns that have no prefix of their own.
        self._nobody = -1 - self._columns
        # What a round adds to the columns before it, [B, columns, columns before]: never anything but in its own.
        self._additions = [
            outputs.new_full((batch, (step + 1) * beam, step * beam), -torch.inf) for step in range(self.rounds + 1)
        ]
        self.frame = self._start(outputs.unflatten(0, (batch, beam)))

    def project(self, encoder_out: Tensor) -> Tensor:
        """Frames [B, T, J] from encoder frames [B, T, D]."""
        return self._joiner.project_encoder(encoder_out)

    def _start(self, outputs: Tensor) -> Frame:
        """The empty prefix in the first slot of every utterance; `outputs` are [B, K, J]."""
        batch, beam, _ = outputs.shape
        columns = self._columns.shape[1]
        scores = outputs.new_full((batch, beam), -torch.inf)
        scores[:, 0] = 0
        fingerprints = self._nobody.clone()
        fingerprints[:, 0] = 0
        return Frame(
            encoded=torch.zeros_like(outputs[:, 0]),
            scores=scores,
            offsets=torch.zeros(batch, dtype=torch.double, device=outputs.device),
            finished=outputs.new_full((batch, columns), -torch.inf),
            fingerprints=fingerprints,
            newest=fingerprints[:, :beam].clone(),
            sources=self._columns.clone(),
            totals=outputs.new_zeros(batch, beam * self._vocabulary),
            choices=torch.zeros_like(fingerprints[:, :beam]),
            record=fingerprints.new_zeros(1 + 2 * self.rounds, batch, beam),
        )

    def begin(self) -> Tensor:
        """Round 0; tells [] whether there is anything to extend."""
        frame = self.frame
        log_sums = self._weigh(self._layout.unpack(self._said[0])[0], frame.scores)
        frame.finished[:, : self.beam] = self._totals()[:, :, BLANK]
        return self._choose(log_sums, 1)

    def extend(self, step: int) -> Tensor | None:
        """Round `step`; tells [] whether there is anything to extend in turn, or None if this may not be."""
        frame = self.frame
        parents, tokens = frame.record[step], frame.record[self.rounds + step]
        _into(parents, torch.floor_divide, frame.choices, self._vocabulary)
        _into(tokens, torch.remainder, frame.choices, self._vocabulary)
        scores = frame.totals.gather(1, frame.choices)
        _into(frame.newest, torch.add, tokens, frame.newest.gather(1, parents), alpha=MULTIPLIER)
        outputs = self._read(parents, tokens, step)
        log_sums = self._weigh(outputs, scores)
        self._merge(step)
        return self._choose(log_sums, step + 1) if step < self.rounds else None

    def end(self, step: int) -> None:
        """The best columns of rounds 0 to `step` as the next beam."""
        frame, beam = self.frame, self.beam
        finished = frame.finished[:, : (step + 1) * beam]
        chosen = finished.float().sort(dim=1, descending=True, stable=True).indices[:, :beam]
        best = finished.gather(1, chosen)
        # A beam without any hypothesis stays where it is.
        top = best[:, :1].nan_to_num(nan=torch.nan, posinf=torch.inf, neginf=0)
        _into(frame.scores, torch.sub, best, top)
        frame.offsets.add_(top[:, 0])
        _into(frame.newest, torch.gather, frame.fingerprints, 1, chosen)
        frame.fingerprints[:, :beam] = frame.newest
        if step > 0:
            _into(frame.record[0], torch.gather, frame.sources, 1, chosen)
        else:
            frame.record[0].copy_(chosen)
        for kind, planes in self._said[0].items():
            rounds = [said[kind].unflatten(1, chosen.shape) for said in self._said[: step + 1]]
            planes.copy_(_slots_of(torch.cat(rounds, dim=2) if step > 0 else rounds[0], chosen))

    def _read(self, parents: Tensor, tokens: Tensor, step: int) -> Tensor:
        """Let the predictor read `tokens` [B, K] after the prefixes in slots `parents` [B, K] of the round before.

        Returns:
            [B * K, J] outputs, projected
        """
        before = {
            kind: _slots_of(planes.unflatten(1, parents.shape), parents)
            for kind, planes in self._said[step - 1].items()
        }
        _, *state = self._layout.unpack(before)
        output, after = self._predictor.step(tokens.flatten(), tuple(state))
        outputs = self._joiner.project_predictor(output)
        self._layout.pack((outputs, *after), self._said[step])
        return outputs

    def _weigh(self, outputs: Tensor, scores: Tensor) -> Tensor:
        """Compute what hypotheses with `scores` [B, K] score after each arc; gives the log-sums [B, K] of their points.

        Args:
            outputs: [B * K, J] of the predictor, projected
            scores: [B, K]
        """
        logits = self._joiner(self.frame.encoded[:, None], outputs.unflatten(0, scores.shape))
        # NaN says that the model is at fault, and soon takes hold of the utterance's offset.
        log_sums = logits.logsumexp(-1).nan_to_num_(nan=torch.nan, posinf=torch.nan, neginf=0)
        _into(self._totals(), torch.add, logits, self._interpolation.weights(scores, log_sums)[:, :, None])
        return log_sums

    def _totals(self) -> Tensor:
        """Scores [B, K, V] after each arc."""
        return self.frame.totals.unflatten(1, (self.beam, self._vocabulary))

    def _choose(self, log_sums: Tensor, step: int) -> Tensor:
        """Choose the extensions for round `step`; tells [] whether there are any.

        Args:
            log_sums: [B, K] of the points that they leave
            step: number of the round
        """
        frame, beam = self.frame, self.beam
        totals = self._totals()
        totals[:, :, BLANK] = -torch.inf
        if not self._interpolation.is_local:
            totals = torch.add(totals, log_sums[:, :, None], alpha=1 - self._interpolation.alpha)
        promises, choices = totals.flatten(1).float().sort(dim=1, descending=True, stable=True)
        finished = frame.finished[:, : step * beam].float()
        threshold = finished.amin(1, keepdim=True) if step == 1 else finished.topk(beam).values[:, -1:]
        kept = promises[:, :beam] > threshold
        _into(frame.choices, torch.where, kept, choices[:, :beam], self._blanks)
        return kept.any()

    def _merge(self, step: int) -> None:
        """Finish round `step`; prefixes that earlier rounds have finished too are merged by log-add."""
        frame, beam = self.frame, self.beam
        columns = step * beam
        new = slice(columns, columns + beam)
        if step == 1:
            frame.sources.copy_(self._columns)
        before, sources = frame.finished[:, :columns], frame.sources[:, :columns]
        blanks = self._totals()[:, :, BLANK]
        # [B, K, columns]: at most one is true for a column, and at most one for a new hypothesis.
        same = frame.newest[:, :, None] == frame.fingerprints[:, None, :columns]
        _into(self._additions[step][:, new], torch.where, same, blanks[:, :, None], self._never)
        added, place = self._additions[step].max(1)
        # Compared as all scores are, in single precision.
        _into(sources, torch.where, added.float() > before.float(), place, sources)
        _into(before, torch.logaddexp, before, added)
        met = same.any(2)
        _into(frame.finished[:, new], torch.where, met, self._never, blanks)
        _into(frame.fingerprints[:, new], torch.where, met, self._nobody[:, new], frame.newest)


def _into(target: Tensor, operation: Callable[..., Tensor], *arguments: Any, **named: Any) -> None:
    """Write what an operation gives into `target`, without a copy unless a compiler sees to that."""
    if torch.compiler.is_compiling():
        target.copy_(operation(*arguments, **named))
    else:
        operation(*arguments, **named, out=target)


def _slots_of(planes: Tensor, slots: Tensor) -> Tensor:
    """The slots [B, K] of planes [P, B, K', W], as planes [P, B * K, W]."""
    count, _, _, width = planes.shape
    return planes.gather(2, slots[None, :, :, None].expand(count, -1, -1, width)).flatten(1, 2)
