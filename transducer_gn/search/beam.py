"""Time-synchronous beam search on tensors, for a whole batch at once.

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

Scores are compared in single precision relative to the best of the frame. Ties go to the earlier round, then to the
better slot, then to the smaller token id. Nothing depends on other utterances of the batch.

Points without any possible weight (all logits -inf) end all alignments that reach them.
"""

from dataclasses import replace

import torch
from torch import Tensor

from transducer_gn.common.units import BLANK
from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.search import packing
from transducer_gn.search.beam_state import Beam, hypotheses_of
from transducer_gn.search.frame import Finished, Round
from transducer_gn.search.hypotheses import Hypotheses, NBest, concatenate_hypotheses
from transducer_gn.search.paths import EMPTY, extend_paths, find_extensions, start_paths
from transducer_gn.search.prefix_pool import NO_NODE, PrefixPool
from transducer_gn.search.ranking import best_indices


class BeamSearch:
    """The search over one model: starts beams and takes them from frame to frame.

    Args:
      model: anything with a `predictor` (see `transducer_gn.model.predictor.Predictor`) and a `joiner` with
        `project_encoder`, `project_predictor` and a call from both projections to logits.
      beam: K, hypotheses kept per utterance.
      alpha: weight of local normalisation, from 0 to 1.
      max_tokens_per_frame: S.
    """

    def __init__(
        self, model, beam: int, alpha: float, max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME
    ) -> None:
        if beam < 1:
            raise ValueError(f"beam must be at least 1, not {beam}")
        if not 0 <= alpha <= 1:
            raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
        if max_tokens_per_frame < 1:
            raise ValueError(f"max_tokens_per_frame must be at least 1, not {max_tokens_per_frame}")
        self.model = model
        self.beam = beam
        self.alpha = alpha
        self.max_tokens_per_frame = max_tokens_per_frame

    def start(self, batch: int) -> Beam:
        """Beams with the empty sequence alone, before any frame."""
        # Rows for the beam, for the prefixes of all rounds, and for as many to choose from in the last one.
        prefixes = PrefixPool.start(self.model, batch, self.beam * (2 + self.max_tokens_per_frame))
        scores = prefixes.outputs.new_full((batch, self.beam), -torch.inf)
        scores[:, 0] = 0
        slots = torch.zeros_like(scores, dtype=torch.long)
        return Beam(
            scores=scores,
            offsets=torch.zeros(batch, dtype=torch.double, device=scores.device),
            rows=slots,
            lengths=slots,
            paths=start_paths(batch, self.beam, scores.device),
            frames=slots[:, 0],
            faulty=torch.zeros(batch, dtype=torch.bool, device=scores.device),
            prefixes=prefixes,
        )

    def advance(self, beam: Beam, frame: Tensor) -> Beam:
        """Take beams over one frame, given as its projected encoder output [B, J]. Waits for no device.

        The given beams are used up: their `prefixes` are overwritten.
        """
        hypotheses = self._first_round(beam)
        finished, faulty = None, beam.faulty
        for step in range(self.max_tokens_per_frame + 1):
            width = packing.width_to_compute(hypotheses.scores > -torch.inf)
            if width == 0:
                break
            live = hypotheses.narrow(width)
            logits, log_sums, is_faulty = self._weigh(beam.prefixes, live, frame)
            faulty = faulty | is_faulty
            blanks = live.scores + logits[:, :, BLANK] - self.alpha * log_sums
            finished = finished.merge(live, blanks) if finished else self._finish_beam(hypotheses, blanks)
            if step < self.max_tokens_per_frame:
                hypotheses = self._extend(beam, live, logits, log_sums, finished, step)
        return self._next_beam(beam, finished, faulty)

    def _first_round(self, beam: Beam) -> Round:
        """The beam as round 0."""
        batch, steps, device = len(beam), self.max_tokens_per_frame, beam.scores.device
        return Round(
            scores=beam.scores,
            nodes=beam.prefixes.nodes.gather(1, beam.rows),
            rows=beam.rows,
            lengths=beam.lengths,
            origins=torch.arange(self.beam, device=device).expand(batch, -1),
            emitted=torch.full((batch, self.beam, steps, 2), EMPTY, dtype=torch.long, device=device),
        )

    def _finish_beam(self, beam: Round, blanks: Tensor) -> Finished:
        """All K slots of the beam as finished hypotheses, given the scores [B, M] of the first M after their blanks."""
        missing = beam.scores.shape[1] - blanks.shape[1]
        return Finished.start(beam, torch.nn.functional.pad(blanks, (0, missing), value=-torch.inf))

    def _weigh(self, prefixes: PrefixPool, live: Round, frame: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [B, M, V] of hypotheses at a frame [B, J], their log-sums [B, M], and whether they are NaN or inf [B].

        Where all logits are -inf there is nothing to normalise, and the log-sum is given as 0.
        """
        exists = live.scores > -torch.inf
        points, width = exists.numel(), exists.shape[1]
        chosen = packing.rows_to_compute(exists)
        logits = self.model.joiner(frame.index_select(0, chosen // width), prefixes.gather_outputs(live.rows, chosen))
        log_sums = logits.logsumexp(-1)
        if len(chosen) < points:
            logits = logits.new_full((points, logits.shape[1]), -torch.inf).index_copy_(0, chosen, logits)
            log_sums = log_sums.new_full((points,), -torch.inf).index_copy_(0, chosen, log_sums)
        logits, log_sums = logits.view(*exists.shape, -1), log_sums.view_as(exists)
        is_faulty = (exists & (log_sums.isnan() | log_sums.isposinf())).any(1)
        return logits, log_sums.where(log_sums > -torch.inf, 0), is_faulty

    def _extend(
        self,
        beam: Beam,
        live: Round,
        logits: Tensor,
        log_sums: Tensor,
        finished: Finished,
        step: int,
    ) -> Round:
        """The next round [B, M']: the most promising extensions of `live`, with their prefixes in the pool.

        Args:
          logits: [B, M, V]; log_sums: [B, M]
          step: number of tokens that the hypotheses of `live` have emitted in this frame.
        """
        vocabulary = logits.shape[2]
        promises = logits + (live.scores + (1 - 2 * self.alpha) * log_sums)[:, :, None]
        promises[:, :, BLANK] = -torch.inf
        promises = promises.flatten(1)
        threshold = finished.threshold(self.beam)
        if packing.nothing_to_compute(promises.amax(1, keepdim=True).float() > threshold):
            return live.narrow(0)
        choice = best_indices(promises, self.beam)
        keep = promises.gather(1, choice).float() > threshold
        width = packing.width_to_compute(keep)
        choice, keep = choice[:, :width], keep[:, :width]
        parent, token = choice // vocabulary, choice % vocabulary
        extended = live.select(parent)
        weights = logits.flatten(1).gather(1, choice) - self.alpha * log_sums.gather(1, parent)

        nodes, rows = self._look_up(beam, extended, token, keep, step, finished.hypotheses.rows)
        emitted = extended.emitted.clone()
        emitted[:, :, step] = torch.stack([nodes, token], dim=-1)
        return Round(
            scores=torch.where(keep, extended.scores + weights, -torch.inf),
            nodes=nodes,
            rows=rows,
            lengths=extended.lengths + 1,
            origins=extended.origins,
            emitted=emitted,
        )

    def _look_up(
        self, beam: Beam, extended: Round, tokens: Tensor, keep: Tensor, step: int, rows_in_use: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Nodes [B, M] and rows [B, M] of prefixes extended by `tokens` [B, M], added to the pool if they are new.

        `rows_in_use` [B, F] are the rows of this frame's hypotheses so far.

        A prefix that the pool has lost may still be on the way to one of the beam: it then keeps its number, so that
        its extensions are recognised as being the same, but the predictor has to read it again.
        """
        in_pool, pool_rows = beam.prefixes.find(extended.nodes, tokens)
        on_path = find_extensions(beam.paths, extended.nodes, extended.lengths, tokens)
        # Numbers that no frame, round or slot shares; 0 is the root.
        slots = torch.arange(tokens.shape[1], device=tokens.device)
        unused = 1 + slots + self.beam * (step + self.max_tokens_per_frame * beam.frames[:, None])
        nodes = torch.where(on_path == NO_NODE, unused, on_path)
        nodes = torch.where(in_pool, beam.prefixes.nodes.gather(1, pool_rows), nodes)
        found_rows = torch.where(in_pool, pool_rows, extended.rows)
        free_rows = beam.prefixes.free_rows([rows_in_use, found_rows], tokens.shape[1])
        beam.prefixes.add(self.model, keep & ~in_pool, free_rows, nodes, tokens, extended.rows)
        return nodes, torch.where(in_pool, pool_rows, free_rows)

    def _next_beam(self, beam: Beam, finished: Finished | None, faulty: Tensor) -> Beam:
        """The best of the finished hypotheses; the same beam a frame later if no utterance has any."""
        frames = beam.frames + 1
        if finished is None:
            return replace(beam, frames=frames, faulty=faulty)
        best = finished.best(self.beam)
        known_bound = beam.paths.shape[2] - 1
        paths = extend_paths(
            beam.paths, beam.lengths, packing.bound(beam.lengths, known_bound), best.origins, best.emitted, beam.frames
        )
        top = best.scores[:, :1]
        top = top.where(top > -torch.inf, 0)
        return Beam(
            scores=best.scores - top,
            offsets=beam.offsets + top[:, 0],
            rows=best.rows,
            lengths=best.lengths,
            paths=paths,
            frames=frames,
            faulty=faulty,
            prefixes=beam.prefixes,
        )


@torch.no_grad()
def advance_over(search: BeamSearch, beam: Beam, encoder_out: Tensor, lengths: list[int]) -> list[Beam]:
    """Take beams of B utterances over several frames each; gives one beam per group of utterances that end together.

    Utterances must be in order of decreasing length, so that those that have not ended are the first at every frame.
    The groups are in the order of the utterances. Waits for no device.

    Args:
      encoder_out: [B, T, D]; lengths: B numbers of frames.
    """
    frames = search.model.joiner.project_encoder(encoder_out)
    ended: list[Beam] = []
    for t in range(max(lengths, default=0)):
        running = sum(length > t for length in lengths)
        if running < len(beam):
            ended.insert(0, beam.utterances(running, len(beam)))
            beam = beam.utterances(0, running)
        beam = search.advance(beam, frames[:running, t])
    return [beam, *ended]


def search_batch(search: BeamSearch, encoder_out: Tensor, frame_lengths: Tensor) -> Hypotheses:
    """All K hypotheses of each utterance, in the order of the beam. Waits for the device before the first frame only.

    Args:
      encoder_out: [B, T, D]
      frame_lengths: [B] number of frames of each utterance; what lies beyond is ignored.
    """
    lengths = check_frames(encoder_out, frame_lengths)
    order = sorted(range(len(lengths)), key=lambda utterance: -lengths[utterance])
    positions = torch.tensor(order, dtype=torch.long, device=encoder_out.device)
    with torch.no_grad():
        beams = advance_over(search, search.start(len(order)), encoder_out[positions], [lengths[i] for i in order])
    return concatenate_hypotheses([hypotheses_of(beam) for beam in beams]).utterances(positions.argsort())


def beam_search(
    model,
    encoder_out: Tensor,
    frame_lengths: Tensor,
    beam: int,
    nbest: int,
    alpha: float,
    max_tokens_per_frame: int = DEFAULT_TOKENS_PER_FRAME,
    length_normalised: bool = False,
) -> NBest:
    """The `nbest` best token sequences of each utterance.

    Args:
      model: see `BeamSearch`.
      encoder_out: [B, T, D]
      frame_lengths: [B] number of frames of each utterance; what lies beyond is ignored.
      beam: hypotheses kept per utterance.
      nbest: most hypotheses to return, at most `beam`.
      alpha: weight of local normalisation, from 0 to 1.
      max_tokens_per_frame: most tokens between two blanks.
      length_normalised: rank the result by score per label instead of by score.

    Returns:
      Lists, best first. There are fewer than `nbest` if there are not as many sequences of weight above 0. If there
      is none at all, because every alignment meets a weight of 0, it is the empty sequence with score -inf.
    """
    if not 1 <= nbest <= beam:
        raise ValueError(f"nbest must be between 1 and beam = {beam}, not {nbest}")
    search = BeamSearch(model, beam, alpha, max_tokens_per_frame)
    found = search_batch(search, encoder_out, frame_lengths)
    found.check()
    return found.best(nbest, length_normalised).to_lists()


def check_frames(encoder_out: Tensor, frame_lengths: Tensor) -> list[int]:
    """The lengths as integers, or a ValueError that says what does not fit. Waits for the device."""
    if encoder_out.dim() != 3:
        raise ValueError(f"encoder_out must be [B, T, D]; its shape is {list(encoder_out.shape)}")
    batch, frames = encoder_out.shape[:2]
    if frame_lengths.shape != (batch,) or frame_lengths.dtype.is_floating_point:
        raise ValueError(
            f"frame_lengths must be integers [{batch}] to go with encoder_out {list(encoder_out.shape)}; "
            f"it is {frame_lengths.dtype} of shape {list(frame_lengths.shape)}"
        )
    lengths = frame_lengths.tolist()
    for utterance, length in enumerate(lengths):
        if not 0 <= length <= frames:
            raise ValueError(f"frame_lengths[{utterance}] is {length}, but encoder_out has {frames} frames")
    return lengths
