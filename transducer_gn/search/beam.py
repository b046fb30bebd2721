"""Time-synchronous beam search for a batch of utterances.

An arc weighs `logits - alpha * log_sum`, and the score of a token sequence is the log-sum over those of its alignments
that the search kept. With K hypotheses (`beam`) and at most S tokens per frame (`max_tokens_per_frame`), one frame is:

1. Round 0 holds the K hypotheses of the beam. In each round s = 0 .. S, every hypothesis takes the frame's blank and
   is finished; it cannot be displaced by tokens. Finished hypotheses with the same tokens are merged by log-add.
2. If s < S, hypotheses of the round are also extended by every token. An extension has a *promise*: its score, plus
   (1 - alpha) * log_sum of the point that it leaves. The blank that it must take in turn is not known before the
   predictor has read the token; what all V weights of a point sum to stands in for it, and for alpha = 1 bounds it.
   Round s + 1 consists of the K extensions of highest promise, as far as this exceeds the K-th best score of those
   finished so far (if there are K). For alpha = 1, what this leaves out could not have entered the beam by itself.
3. After the last round, the K best of the finished hypotheses are the beam at the next frame.

    beam at frame t        round 0          round 1             round 2          beam at frame t + 1

      a b ────────────────── a b ──blank──────────────────────────────────────┐
                              └──c──────► a b c ──blank──────────────────────┐│
                                            └──d──────► a b c d ──blank─────┐││
      a b c ──────────────── a b c ──blank────────────────────────────────┐ │││
                                └──e──► promise below the K-th finished   │ │││      a b c    (two alignments,
                                                                          ▼ ▼▼▼               merged by log-add)
                                                       finished ─────► K best ────►  a b

Scores are compared in single precision relative to the best of the frame. Ties go to the earlier round, then to the
better slot, then to the smaller token id. Nothing depends on other utterances of the batch.

Points without any possible weight (all logits -inf) end all alignments that reach them.

This file decides hypothesis by hypothesis, in lists, and leaves to tensors what there is to multiply: for all
hypotheses of all utterances at once, and only for those that need it. That is the quickest way on a CPU, where a look
at a value costs nothing. On an accelerator, whole utterances are searched by `transducer_gn.search.on_device`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.model.constants import constant
from transducer_gn.search.alone import SearchAlone
from transducer_gn.search.device_run import run_on_device
from transducer_gn.search.frames import JoinedFrames
from transducer_gn.search.hypotheses import Beam, Finished, NBest, Round, Times, check_faulty, check_frames, nbest_of
from transducer_gn.search.on_device import DeviceSearch
from transducer_gn.search.prefixes import PREFIX_BYTES, PrefixStore, SearchedModel, reader_of
from transducer_gn.search.rounds import Weighed, choose_extensions
from transducer_gn.search.rules import SearchRules


class BeamSearch:
    """The search over one model: starts beams and takes them from frame to frame.

    The model's parameters count as constants from now on.

    Args:
        model: a predictor and a joiner
        beam: K, hypotheses kept per utterance
        alpha: weight of local normalisation, from 0 to 1
        max_tokens_per_frame: S
    """

    def __init__(
        self,
        model: SearchedModel,
        beam: int,
        alpha: float,
        max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME,
    ) -> None:
        rules = SearchRules(beam, alpha, max_tokens_per_frame)
        self.interpolation = rules.interpolation
        self.beam = beam
        self.max_tokens_per_frame = max_tokens_per_frame
        self._joiner = constant(model.joiner, "quick")
        with torch.no_grad():
            self._store = PrefixStore(reader_of(model))
        self._alone = SearchAlone(self._joiner, self._store, rules)

    def start(self, batch: int) -> list[Beam]:
        """Beams of the empty sequence alone, before any frame, one for each utterance."""
        beams = []
        for _ in range(batch):
            root = self._store.root()
            beams.append(Beam(root, [root]))
            self._store.hold(beams[-1])
        return beams

    @torch.no_grad()
    def advance_alone(self, beam: Beam, frames: Tensor) -> None:
        """Take one beam over frames [T, J]."""
        self._alone.advance(beam, frames)

    @torch.no_grad()
    def advance(self, beams: Sequence[Beam], frame: Tensor) -> None:
        """Take beams over one frame, given as its projected encoder output [B, J]."""
        self._store.make_room()
        hypotheses = self._first_round(beams)
        finished = [Finished() for _ in beams]
        for step in range(self.max_tokens_per_frame + 1):
            if not hypotheses.prefixes:
                break
            weighed = self._weigh(beams, hypotheses, frame)
            self._finish(hypotheses, weighed, finished, merge=step > 0)
            if step == self.max_tokens_per_frame:
                break
            hypotheses = self._extend(beams, hypotheses, weighed, finished)
        for beam, own in zip(beams, finished, strict=True):
            beam.follow(own, own.best(self.beam))

    def project(self, encoder_out: Tensor) -> Tensor:
        """Frames [B, T, J] to advance over from encoder frames [B, T, D]."""
        with torch.no_grad():
            return self._joiner.project_encoder(encoder_out)

    def hypotheses(self, beams: Sequence[Beam]) -> NBest:
        """All hypotheses of beams, in their order."""
        # Scores are those of the model's precision; their sum with the offset is not.
        scores = [self._tensor(beam.scores).double() + beam.offset for beam in beams]
        return nbest_of(list(beams), [own.tolist() for own in scores])

    def held_bytes(self, beam: Beam) -> int:
        """Memory that a beam holds on to."""
        return len(beam.prefixes) * self._store.row_bytes() + beam.size() * PREFIX_BYTES

    def _first_round(self, beams: Sequence[Beam]) -> Round:
        """The hypotheses of the beams."""
        ends, count = [], 0
        for beam in beams:
            count += len(beam.prefixes)
            ends.append(count)
        return Round(
            scores=self._tensor([score for beam in beams for score in beam.scores]),
            prefixes=[prefix for beam in beams for prefix in beam.prefixes],
            times=[times for beam in beams for times in beam.times],
            ends=ends,
        )

    def _weigh(self, beams: Sequence[Beam], hypotheses: Round, frame: Tensor) -> Weighed:
        """The points of hypotheses at a frame [B, J]; marks beams at which a weight is NaN or infinitely large."""
        if len(beams) > 1:
            frame = frame.index_select(0, torch.tensor(hypotheses.owners(), device=frame.device))
        logits = self._joiner(frame, self._store.gather(hypotheses.prefixes))
        log_sums = logits.logsumexp(-1)
        values = log_sums.tolist()
        if not math.isfinite(sum(values)):
            for owner, value in zip(hypotheses.owners(), values, strict=True):
                beams[owner].faulty |= math.isnan(value) or value == math.inf
            log_sums = log_sums.where(log_sums > -torch.inf, 0)
        return Weighed(logits, log_sums, hypotheses.scores + (1 - 2 * self.interpolation.alpha) * log_sums)

    def _finish(self, hypotheses: Round, weighed: Weighed, finished: list[Finished], merge: bool) -> None:
        """Let hypotheses take their blanks; those that an earlier round has finished too are merged with it."""
        blanks = self.interpolation.weights(hypotheses.scores + weighed.logits[:, BLANK], weighed.log_sums)
        scores, ranks = _values(blanks)
        if merge:
            self._merge(hypotheses, blanks, ranks, finished)
            return
        start = 0
        for own, end in zip(finished, hypotheses.ends, strict=True):
            own.scores, own.ranks = scores[start:end], ranks[start:end]
            own.prefixes, own.times = hypotheses.prefixes[start:end], hypotheses.times[start:end]
            if own.ranks and not min(own.scores) > -math.inf:
                exists = [score > -math.inf for score in own.scores]
                for name in ("scores", "ranks", "prefixes", "times"):
                    setattr(own, name, [x for x, keep in zip(getattr(own, name), exists, strict=True) if keep])
            start = end

    def _merge(self, hypotheses: Round, blanks: Tensor, ranks: list[float], finished: list[Finished]) -> None:
        """Add a round after its blanks [n] to what is finished."""
        owners = hypotheses.owners()
        places = [{prefix: place for place, prefix in enumerate(own.prefixes)} for own in finished]
        known = [places[owner].get(prefix) for owner, prefix in zip(owners, hypotheses.prefixes, strict=True)]
        if any(place is not None for place in known):
            before = [-math.inf if p is None else finished[b].scores[p] for b, p in zip(owners, known, strict=True)]
            blanks = self._log_add(before, blanks.tolist(), hypotheses.ends)
        rows = zip(owners, known, hypotheses.prefixes, hypotheses.times, ranks, *_values(blanks), strict=True)
        for owner, place, prefix, times, alone, score, rank in rows:
            own = finished[owner]
            if not alone > -math.inf:
                continue
            if place is None:
                own.add(score, rank, prefix, times)
                continue
            if alone > own.ranks[place]:
                own.times[place] = times
            own.scores[place], own.ranks[place] = score, rank

    def _log_add(self, before: list[float], scores: list[float], ends: list[int]) -> Tensor:
        """Log-sums [n] of two lists of a round's scores."""
        # Vector units round log-add in another way than the rest of a tensor is rounded. Utterances side by side,
        # padded to the same number of hypotheses, are what all published numbers were computed with.
        width = max(end - start for start, end in zip([0, *ends], ends, strict=False))
        padding = [-math.inf] * width
        first: list[float] = []
        second: list[float] = []
        kept: list[int] = []
        for start, end in zip([0, *ends], ends, strict=False):
            kept += range(len(first), len(first) + end - start)
            first += before[start:end] + padding[end - start :]
            second += scores[start:end] + padding[end - start :]
        return torch.logaddexp(self._tensor(first), self._tensor(second))[kept]

    def _extend(self, beams: Sequence[Beam], hypotheses: Round, weighed: Weighed, finished: list[Finished]) -> Round:
        """The next round: the most promising extensions, with their prefixes in the store."""
        chosen, ends = choose_extensions(hypotheses, weighed, finished, self.beam)
        if not chosen:
            return Round(weighed.log_sums[:0], [], [], ends)
        vocabulary = weighed.logits.shape[1]
        rows = torch.tensor([row for row, _ in chosen], device=weighed.logits.device)
        arcs = torch.tensor([row * vocabulary + token for row, token in chosen], device=rows.device)
        weights = self.interpolation.weights(weighed.logits.take(arcs), weighed.log_sums.index_select(0, rows))
        prefixes = [hypotheses.prefixes[row].extend(token) for row, token in chosen]
        self._store.read(prefixes)
        times: list[Times] = []
        start = 0
        for beam, end in zip(beams, ends, strict=True):
            times += [(beam.frames, hypotheses.times[row]) for row, _ in chosen[start:end]]
            start = end
        return Round(hypotheses.scores.index_select(0, rows) + weights, prefixes, times, ends)

    def _tensor(self, values: list[float]) -> Tensor:
        """Scores [n] in the model's precision."""
        return torch.tensor(values, dtype=self._store.outputs.dtype, device=self._store.outputs.device)


def _values(scores: Tensor) -> tuple[list[float], list[float]]:
    """Scores [n] as they are and as they are compared, in single precision."""
    values = scores.tolist()
    return values, values if scores.dtype == torch.float32 else scores.float().tolist()


def advance_over(search: BeamSearch, beams: list[Beam], encoder_out: Tensor, lengths: list[int]) -> None:
    """Take the beams of B utterances over several frames each.

    Args:
        search: what the beams were started by
        beams: one for each utterance
        encoder_out: [B, T, D]
        lengths: B numbers of frames
    """
    _advance(search, beams, JoinedFrames.of([search.project(encoder_out)], [lengths]))


def _advance(search: BeamSearch, beams: list[Beam], frames: JoinedFrames) -> None:
    """See `advance_over`."""
    if len(beams) == 1:
        start, length = frames.starts[0], frames.lengths[0]
        search.advance_alone(beams[0], frames.frames[start : start + length])
        return
    longest_first = [beams[utterance] for utterance in frames.longest_first()]
    for frame in frames.by_time():
        search.advance(longest_first[: len(frame)], frame)


def beam_search(
    model: SearchedModel,
    encoder_out: Tensor,
    frame_lengths: Tensor,
    beam: int,
    nbest: int,
    alpha: float,
    max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME,
) -> NBest:
    """The `nbest` best token sequences of each utterance.

    Args:
        model: a predictor and a joiner
        encoder_out: [B, T, D]
        frame_lengths: [B] number of frames of each utterance; what lies beyond is ignored
        beam: hypotheses kept per utterance
        nbest: most hypotheses to return, at most `beam`
        alpha: weight of local normalisation, from 0 to 1
        max_tokens_per_frame: most tokens between two blanks

    Returns:
        lists, best first. There are fewer than `nbest` if there are not as many sequences of weight above 0. If there
        is none at all, because every alignment meets a weight of 0, it is the empty sequence with score -inf
    """
    if not 1 <= nbest <= beam:
        raise ValueError(f"nbest must be between 1 and beam = {beam}, not {nbest}")
    rules = SearchRules(beam, alpha, max_tokens_per_frame)
    return search_together(model, [(encoder_out, frame_lengths)], rules).best(nbest)


@torch.no_grad()
def search_together(model: SearchedModel, batches: Sequence[tuple[Tensor, Tensor]], rules: SearchRules) -> NBest:
    """All hypotheses of all utterances of several batches, in the order of their beams, from one search.

    The number of operations depends on the longest utterance, not on how many there are.

    Args:
        model: a predictor and a joiner
        batches: for each [B, T, D] frames and [B] their numbers; what lies beyond is ignored
        rules: of the search
    """
    lengths = [check_frames(*batch) for batch in batches]
    count = sum(len(own) for own in lengths)
    if not may_look(batches[0][0]):
        on_device = DeviceSearch(model, count, rules)
        projected = [on_device.project(encoder_out) for encoder_out, _ in batches]
        return run_on_device(on_device, JoinedFrames.of(projected, lengths), rules.graph)
    search = BeamSearch(model, rules.beam, rules.alpha, rules.max_tokens_per_frame)
    beams = search.start(count)
    _advance(search, beams, JoinedFrames.of([search.project(encoder_out) for encoder_out, _ in batches], lengths))
    check_faulty([own.faulty for own in beams])
    return search.hypotheses(beams)


def may_look(tensor: Tensor) -> bool:
    """Whether values of `tensor` can be read without synchronising with a device."""
    return tensor.device.type == "cpu"
