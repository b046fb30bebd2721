"""The beam search for accelerators: the rules of `transducer_gn.search.beam` in few operations of fixed shapes.

What costs on an accelerator is not to multiply but to launch. So a frame is a handful of steps on tensors whose shapes
never change and that are written in place, ready to be captured as graphs:

    begin        round 0: joiner, blanks, the K most promising extensions of every utterance
    extend(s)    round s: predictor, joiner, blanks, merging, and again the K most promising extensions
    end(s)       the K best of all columns that rounds 0 .. s have finished

After each round the host looks at which extensions are promising enough, and leaves out the rounds that nobody needs: a
look costs what three launches cost, a round more than twenty.

Hypotheses of a frame stand in columns: those of round s in columns s * K to (s + 1) * K. What became of them is
recorded frame by frame (`transducer_gn.search.record`) and read backwards on the host at the end; nothing is carried
along. Whether two prefixes are the same is told by fingerprints of 64 bits: an utterance compares some hundred thousand
of them, and takes two different ones for the same with a probability below 1e-13. A prefix belongs to the first column
that has its fingerprint; columns behind it that have the same are without a hypothesis. Utterances that have ended are
carried on, since shapes do not change, and read from where they ended.
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
from transducer_gn.search.record import Record
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

    def empty(self, parts: State, rounds: int) -> Planes:
        """Planes [P, rounds, n, W] for parts [n, ..., W] of each round."""
        counts = dict.fromkeys(self._kinds, 0)
        for shape, kind in zip(self._shapes, self._kinds, strict=True):
            counts[kind] += shape[:-1].numel()
        first = parts[0]
        return {
            kind: first.new_empty(count, rounds, len(first), kind[1], dtype=kind[0]) for kind, count in counts.items()
        }

    def pack(self, parts: State, planes: Planes, before: Planes | None = None) -> None:
        """Write parts [n, ..., W] to planes [P, rounds, n, W], behind those of the rounds before [P, rounds - 1, n, W].

        One operation writes them all, so that those of all rounds are together when the best are looked up.
        """
        groups: dict[tuple[torch.dtype, int], list[Tensor]] = {kind: [] for kind in self._kinds}
        for kind, shape, part in zip(self._kinds, self._shapes, parts, strict=True):
            own = part.movedim(0, -2).flatten(0, -3) if len(shape) > 1 else part.unflatten(0, (1, -1))
            groups[kind] += (own if shape else own[:, :, None]).split(1)
        for kind, group in groups.items():
            if before is not None:
                group = [piece for pair in zip(before[kind].unbind(), group, strict=True) for piece in pair]
            _into(planes[kind].flatten(0, 1), torch.cat, group)

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
        scores: [B, K] of the beam, relative to the best; -inf in slots without a hypothesis, NaN in beams without any
        finished: [B, C] scores after this frame's blank; -inf in columns without a hypothesis, or merged into another
        columns: [2, B, C] fingerprints of the prefixes; and where each column's row stands among those of all rounds
        totals: [B, K * V] scores of the extensions that come next
        record: what becomes of hypotheses
    """

    encoded: Tensor
    scores: Tensor
    finished: Tensor
    columns: Tensor
    totals: Tensor
    record: Record[Tensor]


class DeviceSearch:
    """A search over B utterances of one model, whose parameters count as constants from now on.

    Args:
        model: a predictor and a joiner
        batch: B
        rules: K, S and the normalisation

    Attributes:
        beam: K
        rounds: S
        vocabulary: V
        frame: what it works on
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
        # What the predictor said about the hypotheses of rounds 0 to s, for each s.
        self._said = [self._layout.empty((outputs, *state), step + 1) for step in range(self.rounds + 1)]
        self._layout.pack((outputs, *state), self._said[0])
        self.vocabulary = self._joiner(outputs[:1], outputs[:1]).shape[-1]
        arcs = torch.arange(beam * self.vocabulary, device=outputs.device)
        # [2, K * V] slot and token of each extension.
        self._arcs = torch.stack([arcs // self.vocabulary, arcs % self.vocabulary])
        self._blanks = BLANK + self.vocabulary * torch.arange(beam, device=outputs.device)
        self._never = outputs.new_full((batch, (self.rounds + 1) * beam), -torch.inf)
        # What rounds 0 to s have finished, best first, in single precision; and in which columns that is, for each s.
        self._rankings = [
            (self._never[:, : (step + 1) * beam].float().clone(), arcs.new_zeros(batch, (step + 1) * beam))
            for step in range(self.rounds + 1)
        ]
        self.frame = self._start(outputs.unflatten(0, (batch, beam)))

    def project(self, encoder_out: Tensor) -> Tensor:
        """Frames [B, T, J] from encoder frames [B, T, D]."""
        return self._joiner.project_encoder(encoder_out)

    def _start(self, outputs: Tensor) -> Frame:
        """The empty prefix in the first slot of every utterance; `outputs` are [B, K, J]."""
        batch, beam, _ = outputs.shape
        columns, device = (self.rounds + 1) * beam, outputs.device
        scores = outputs.new_full((batch, beam), -torch.inf)
        scores[:, 0] = 0
        fingerprints = -torch.arange(columns, device=device).expand(batch, -1)
        rows = torch.arange(batch * columns, device=device).view(self.rounds + 1, batch, beam)
        return Frame(
            encoded=torch.zeros_like(outputs[:, 0]),
            scores=scores,
            finished=self._never.clone(),
            columns=torch.stack([fingerprints, rows.transpose(0, 1).flatten(1)]),
            totals=outputs.new_zeros(batch, beam * self.vocabulary),
            record=Record.zeros(scores, self.rounds),
        )

    def begin(self) -> Tensor:
        """Round 0; tells [B, K] which places of the next round are taken."""
        log_sums = self._weigh(self._outputs(0), self.frame.scores)
        _into(self.frame.finished, torch.cat, [self._totals()[:, :, BLANK], self._never[:, self.beam :]], dim=1)
        self._rank(0)
        return self._choose(log_sums, 1)

    def extend(self, step: int) -> Tensor | None:
        """Round `step`; tells [B, K] which places of the next round are taken, or None if there may not be one."""
        frame, choices = self.frame, self.frame.record.choices[step - 1]
        scores = frame.totals.gather(1, choices)
        parents, tokens = self._arcs.index_select(1, choices.flatten()).unflatten(1, choices.shape).unbind()
        fingerprints = frame.columns[0].unflatten(1, (-1, self.beam))
        before = fingerprints[:, step - 1].gather(1, parents)
        _into(fingerprints[:, step], torch.add, tokens, before, alpha=MULTIPLIER)
        self._read(parents, tokens, step)
        log_sums = self._weigh(self._outputs(step), scores)
        self._merge(step)
        self._rank(step)
        return self._choose(log_sums, step + 1) if step < self.rounds else None

    def end(self, step: int) -> None:
        """The best columns of rounds 0 to `step` as the next beam."""
        frame, record = self.frame, self.frame.record
        chosen = self._rankings[step][1][:, : self.beam]
        _into(record.survivors, torch.gather, frame.columns, 2, chosen.expand(2, -1, -1))
        _into(record.best, torch.gather, frame.finished, 1, chosen)
        _into(frame.scores, torch.sub, record.best, record.best[:, :1])
        fingerprints, rows = record.survivors.unbind()
        frame.columns[0, :, : self.beam] = fingerprints
        for kind, planes in self._said[0].items():
            said, beam = self._said[step][kind].flatten(1, 2), planes[:, 0]
            if step > 0:
                _into(beam, torch.index_select, said, 1, rows.flatten())
            else:
                beam.copy_(said.index_select(1, rows.flatten()))

    def _outputs(self, step: int) -> Tensor:
        """What the predictor said [B * K, J] about the hypotheses of round `step`, projected."""
        return self._layout.unpack({kind: planes[:, step] for kind, planes in self._said[step].items()})[0]

    def _read(self, parents: Tensor, tokens: Tensor, step: int) -> None:
        """Let the predictor read `tokens` [B, K] after the prefixes in slots `parents` [B, K] of the round before."""
        said = self._said[step - 1]
        before = {kind: _slots_of(planes[:, -1].unflatten(1, parents.shape), parents) for kind, planes in said.items()}
        _, *state = self._layout.unpack(before)
        output, after = self._predictor.step(tokens.flatten(), tuple(state))
        self._layout.pack((self._joiner.project_predictor(output), *after), self._said[step], said)

    def _weigh(self, outputs: Tensor, scores: Tensor) -> Tensor:
        """Compute what hypotheses with `scores` [B, K] score after each arc; gives the log-sums [B, K] of their points.

        Args:
            outputs: [B * K, J] of the predictor, projected
            scores: [B, K]
        """
        logits = self._joiner(self.frame.encoded[:, None], outputs.unflatten(0, scores.shape))
        # NaN says that the model is at fault, and soon takes hold of the utterance's offset.
        log_sums = logits.logsumexp(-1).nan_to_num_(nan=torch.nan, posinf=torch.nan, neginf=0)
        weights = self._interpolation.weights_at_once(scores, log_sums)
        _into(self._totals(), torch.add, logits, weights[:, :, None])
        return log_sums

    def _totals(self) -> Tensor:
        """Scores [B, K, V] after each arc."""
        return self.frame.totals.unflatten(1, (self.beam, self.vocabulary))

    def _rank(self, step: int) -> None:
        """Sort what rounds 0 to `step` have finished; of equal ones the first is the first."""
        finished = self.frame.finished[:, : (step + 1) * self.beam].float()
        _sort_into(self._rankings[step], finished)

    def _choose(self, log_sums: Tensor, step: int) -> Tensor:
        """Choose the extensions for round `step`; tells [B, K] which of its places are taken.

        The others have a blank, of score -inf, for a choice.

        Args:
            log_sums: [B, K] of the points that they leave
            step: number of the round
        """
        beam, totals = self.beam, self._totals()
        totals[:, :, BLANK] = -torch.inf
        if not self._interpolation.is_local:
            totals = torch.add(totals, log_sums[:, :, None], alpha=1 - self._interpolation.alpha)
        promises, choices = totals.flatten(1).float().sort(dim=1, descending=True, stable=True)
        kept = promises[:, :beam] > self._rankings[step - 1][0][:, beam - 1 : beam]
        _into(self.frame.record.choices[step - 1], torch.where, kept, choices[:, :beam], self._blanks)
        return kept

    def _merge(self, step: int) -> None:
        """Finish round `step`; prefixes that earlier rounds have finished too are merged by log-add."""
        frame, record = self.frame, self.frame.record
        earlier, columns = step * self.beam, (step + 1) * self.beam
        fingerprints, finished = frame.columns[0, :, :columns], frame.finished[:, :columns]
        # [B, K, columns]: true in a hypothesis's own column at least.
        same = fingerprints[:, earlier:, None] == fingerprints[:, None]
        targets = record.targets[step - 1]
        _into(targets, torch.argmax, same.view(torch.uint8), 2)
        # No two hypotheses have the same target, but for those of score -inf.
        added = self._never[:, :columns].scatter(1, targets, self._totals()[:, :, BLANK])
        # Compared as all scores are, in single precision.
        exceeded = record.exceeded[step - 1, :, :earlier]
        _into(exceeded, torch.gt, added[:, :earlier].float(), finished[:, :earlier].float())
        _into(finished, torch.logaddexp, finished, added)


def _into(target: Tensor, operation: Callable[..., Tensor], *arguments: Any, **named: Any) -> None:
    """Write what an operation gives into `target`, without a copy unless a compiler sees to that."""
    if torch.compiler.is_compiling():
        target.copy_(operation(*arguments, **named))
    else:
        operation(*arguments, **named, out=target)


def _sort_into(target: tuple[Tensor, Tensor], values: Tensor) -> None:
    """Write values [B, n] in falling order, and the places where they stood, to two tensors [B, n]."""
    if torch.compiler.is_compiling():
        for part, found in zip(target, values.sort(dim=1, descending=True, stable=True), strict=True):
            part.copy_(found)
    else:
        torch.sort(values, dim=1, descending=True, stable=True, out=target)


def _slots_of(planes: Tensor, slots: Tensor) -> Tensor:
    """The slots [B, K] of planes [P, B, K', W], as planes [P, B * K, W]."""
    count, _, _, width = planes.shape
    return planes.gather(2, slots[None, :, :, None].expand(count, -1, -1, width)).flatten(1, 2)
