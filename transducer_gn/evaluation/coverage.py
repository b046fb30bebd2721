"""How good N-best lists are as normalisers, for systems whose exact Z can be computed.

With a finite-state predictor Z is a sum over all label sequences that dynamic programming can do. Beside it stands what
training takes for it: the reference and the N best competitors of a search at the system's alpha. Both count alignments
with at most so many tokens per frame, so that all of the difference is that of the lists.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transducer_gn.config import CompetitorConfig, RecognitionConfig
from transducer_gn.data.batches import Batch
from transducer_gn.lattice.finite_state import capped_scores, log_normaliser, sequence_weights, state_logits
from transducer_gn.lattice.interpolation import Interpolation
from transducer_gn.lattice.prefix_tree import distinct_sequences
from transducer_gn.model.predictor import FiniteStatePredictor
from transducer_gn.recognition.system import System
from transducer_gn.search.competitors import UNCUT, find_competitors


@dataclass(frozen=True)
class Coverage:
    """Lists of the reference and N competitors against exact Z.

    Attributes:
        count: N
        log_shares: logarithms of the list's share of exact Z, one for each utterance
        cosine: of the angle between the gradient of the loss with the list and that of the exact loss, both with
            respect to all parameters and summed over all utterances
        distance: norm of the difference of these gradients, relative to the exact one's
    """

    count: int
    log_shares: list[float]
    cosine: float
    distance: float

    def mean_share(self) -> float:
        """Mean over utterances of the share of exact Z."""
        return float(torch.tensor(self.log_shares).exp().mean())


def measure_coverage(
    system: System, batches: Iterable[Batch], counts: Sequence[int], max_tokens_per_frame: int
) -> list[Coverage]:
    """Coverage for each N in `counts`, over all utterances of the batches, which are on the system's device."""
    system.model.requires_grad_(True)
    parameters = list(system.model.parameters())
    names: list[int | None] = [None, *counts]
    gradients = {name: [torch.zeros_like(parameter) for parameter in parameters] for name in names}
    log_shares: dict[int, list[float]] = {count: [] for count in counts}
    for batch in batches:
        losses, covered = batch_losses(system, batch, counts, max_tokens_per_frame)
        for count in counts:
            log_shares[count] += covered[count].tolist()
        for name in names:
            found = torch.autograd.grad(losses[name], parameters, retain_graph=True, allow_unused=True)
            for total, gradient in zip(gradients[name], found, strict=True):
                total += 0 if gradient is None else gradient
    system.model.requires_grad_(False)
    exact = flat(gradients[None])
    results = []
    for count in counts:
        own = flat(gradients[count])
        cosine = float(torch.nn.functional.cosine_similarity(own, exact, dim=0))
        results.append(Coverage(count, log_shares[count], cosine, float((own - exact).norm() / exact.norm())))
    return results


def batch_losses(
    system: System, batch: Batch, counts: Sequence[int], max_tokens_per_frame: int
) -> tuple[dict[int | None, Tensor], dict[int, Tensor]]:
    """Losses of a batch by N, the exact one under None; and the logarithms [B] of the lists' shares of exact Z."""
    model, interpolation = system.model, Interpolation(system.alpha)
    encoder_out, frame_lengths = model.encode(batch.features, batch.feature_lengths, system.chunk(RecognitionConfig()))
    competitors = find_competitors(
        model,
        encoder_out.detach(),
        frame_lengths,
        batch.tokens,
        batch.token_lengths,
        CompetitorConfig(count=max(counts), max_tokens_per_frame=max_tokens_per_frame, max_length=UNCUT),
        interpolation,
    )
    tokens, lengths = competitors.with_references(batch.tokens, batch.token_lengths)
    assert isinstance(model.predictor, FiniteStatePredictor), "exact Z needs a finite number of states"
    logits = state_logits(model.joiner.lattice_inputs(encoder_out, frame_lengths, model.predictor.all_states()))
    scores = list_scores(logits, tokens, lengths, frame_lengths, max_tokens_per_frame)
    scores = scores.masked_fill(~distinct_sequences(tokens, lengths), -math.inf)
    interpolated = interpolation.weights(logits, logits.logsumexp(3, keepdim=True))
    numerator = list_scores(interpolated, tokens[:, :1], lengths[:, :1], frame_lengths, max_tokens_per_frame)[:, 0]
    exact = log_normaliser(logits, frame_lengths, max_tokens_per_frame)
    losses: dict[int | None, Tensor] = {None: interpolation.loss(exact, numerator).sum()}
    covered = {}
    for count in counts:
        normaliser = scores[:, : 1 + count].logsumexp(1)
        losses[count] = interpolation.loss(normaliser, numerator).sum()
        covered[count] = (normaliser - exact).detach()
    return losses, covered


def list_scores(
    logits: Tensor, tokens: Tensor, lengths: Tensor, frame_lengths: Tensor, max_tokens_per_frame: int
) -> Tensor:
    """Log-sums [B, N] over the alignments of the sequences of a list.

    Args:
        logits: [B, T, V**c, V] raw or interpolated weights
        tokens: [B, N, U] sequences
        lengths: [B, N] their numbers of tokens, -1 where there is no sequence
        frame_lengths: [B] number of frames of each utterance
        max_tokens_per_frame: most tokens of an alignment at one frame
    """
    token_weights, blank_weights, _ = sequence_weights(logits, tokens, lengths)
    return capped_scores(token_weights, blank_weights, lengths, frame_lengths, max_tokens_per_frame)


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """All elements in one row."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def coverage_row(name: str, system: System, coverage: Coverage) -> list[str]:
    """The cells of one list in a table."""
    median = float(torch.tensor(coverage.log_shares).exp().quantile(0.5))
    # Shares of early systems are small, so they get their leading digits.
    shares = [f"{share:.3g}" for share in (coverage.mean_share(), median)]
    gradients = [f"{number:.3f}" for number in (coverage.cosine, coverage.distance)]
    return [name, f"{system.alpha:g}", str(coverage.count), *shares, *gradients]
