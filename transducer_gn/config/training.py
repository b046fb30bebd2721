"""Settings of training: normalisation, competitors, objective, optimiser, the loop."""

from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Literal

from transducer_gn.common.errors import require, require_positive, require_probability
from transducer_gn.config.fields import may_change


@dataclass(frozen=True)
class NormalisationConfig:
    """The way from local to global normalisation, in epochs since training branched off (or began).

    Attributes:
        alpha: interpolation weight to arrive at; 1 is local normalisation, 0 fully global
        alpha_start: interpolation weight to begin with; less than 1 in a branch of a run that is global already
        alpha_delay: epochs before alpha starts to move
        alpha_per_epoch: how far alpha moves per epoch
        regulariser: weight of the log-sum regulariser; 0 for none
        regulariser_ramp: epochs over which that weight rises from 0
        exact: sum Z over all sequences instead of competitors; needs a finite-state predictor and a small vocabulary
        exact_tokens_per_frame: tokens that these sequences may have at one frame
    """

    alpha: float = 1.0
    alpha_start: float = 1.0
    alpha_delay: float = 1.0
    alpha_per_epoch: float = 0.25
    regulariser: float = 0.0
    regulariser_ramp: float = 1.0
    exact: bool = False
    exact_tokens_per_frame: int = 3

    def __post_init__(self) -> None:
        section = "normalisation"
        require_positive(section, exact_tokens_per_frame=self.exact_tokens_per_frame)
        require(0 <= self.alpha <= 1, f"{section}.alpha", f"must be from 0 (global) to 1 (local), not {self.alpha}")
        require(
            self.alpha <= self.alpha_start <= 1,
            f"{section}.alpha_start",
            f"must be from {section}.alpha = {self.alpha} to 1, not {self.alpha_start}",
        )
        require_positive(section, alpha_per_epoch=self.alpha_per_epoch)
        for name in ("alpha_delay", "regulariser", "regulariser_ramp"):
            value = getattr(self, name)
            require(value >= 0, f"{section}.{name}", f"must be 0 or more, not {value}")

    def alpha_at(self, epochs: Fraction | float) -> float:
        """Alpha so many epochs after the branch: it waits, then falls linearly to its target, and stays."""
        moved = self.alpha_per_epoch * max(0.0, float(epochs) - self.alpha_delay)
        return max(self.alpha, self.alpha_start - moved)

    def regulariser_at(self, epochs: Fraction | float) -> float:
        """The regulariser's weight so many epochs after the branch: it rises linearly, and stays."""
        ramp = 1.0 if self.regulariser_ramp == 0 else min(1.0, float(epochs) / self.regulariser_ramp)
        return ramp * self.regulariser


@dataclass(frozen=True)
class AlignmentConfig:
    """Help for the beginning of training, while a model does not know yet where its tokens are.

    With few tokens per second a Transducer soon learns to emit them all early, before anything is heard, lest the
    utterance end: there it predicts tokens from tokens, and what it hears of each comes too late to be learnt from.

    Attributes:
        diagonal_prior: how strongly alignments of the reference are drawn to the diagonal at first; 0 for not at all.
            At 50, a token that is a tenth of the utterance away from its place has its weight multiplied by exp(-0.5)
        diagonal_epochs: epochs, from the beginning of training, in which this falls to 0
    """

    diagonal_prior: float = 0.0
    diagonal_epochs: float = 1.0

    def __post_init__(self) -> None:
        prior = self.diagonal_prior
        require(prior >= 0, "alignment.diagonal_prior", f"must be 0 or more, not {prior}")
        require_positive("alignment", diagonal_epochs=self.diagonal_epochs)

    def diagonal_prior_at(self, epochs: Fraction | float) -> float:
        """The prior so many epochs after the beginning of training: it falls linearly to 0, and stays there."""
        return self.diagonal_prior * max(0.0, 1.0 - float(epochs) / self.diagonal_epochs)


@dataclass(frozen=True)
class SearchConfig:
    """How beam searches run, in training and in recognition with what was trained; no result depends on it.

    Attributes:
        graph: "auto" replays the steps of a frame as graphs on a CUDA device, "off" launches them one by one
    """

    graph: Literal["auto", "off"] = may_change("auto")


@dataclass(frozen=True)
class CompetitorConfig:
    """The search for competitors in training.

    Attributes:
        count: N, competitors per utterance
        beam: hypotheses that the search keeps, more than count; null for count + 1
        max_tokens_per_frame: tokens that the search may emit at one frame, here and in recognition. Few frames have a
            second token, so that three cost little more than one; where all tokens are long words, one is enough.
            Scores of competitors count all alignments in any case
        lookahead: batches that are searched together before training on them, with an encoder pass of their own, as
            in the paper (20); 0 searches on the encoder output of the training pass itself
        max_length: most tokens of a competitor, as a multiple of its reference's, and ten more. A search that has gone
            astray emits tokens at every frame, for which there would be no memory; longer competitors are cut there
    """

    count: int = 10
    beam: int | None = None
    max_tokens_per_frame: int = 3
    lookahead: int = 0
    max_length: float = 2.0

    def __post_init__(self) -> None:
        section = "competitors"
        require_positive(section, count=self.count, max_tokens_per_frame=self.max_tokens_per_frame)
        require(self.max_length >= 1, f"{section}.max_length", f"must be 1 or more, not {self.max_length}")
        require(self.lookahead >= 0, f"{section}.lookahead", f"must be 0 or more batches, not {self.lookahead}")
        require(
            self.beam is None or self.beam > self.count,
            f"{section}.beam",
            f"must be more than {section}.count = {self.count}, "
            f"since the reference may be in the beam, not {self.beam}",
        )

    def longest(self, reference_length: int) -> int:
        """Most tokens of a competitor of a reference of so many tokens."""
        return int(self.max_length * reference_length) + 10


@dataclass(frozen=True)
class ObjectiveConfig:
    """How the objective is evaluated.

    Attributes:
        regulariser_points: at how many competitor points per utterance the regulariser is evaluated, drawn at random
            without bias; "all" evaluates every point, as the paper does. The reference's points are always all in
        negligible: share of the largest gradient that the gradients left out of backward may add up to. Occupations
            along a sequence add up to hundreds, so that the default is below what float32 resolves
        backend: of the recursion: "auto" for the fastest that is there, "torch", "k2" or "fast_rnnt"
    """

    regulariser_points: int | Literal["all"] = 1024
    negligible: float = 1e-5
    backend: Literal["auto", "torch", "k2", "fast_rnnt"] = "auto"

    def __post_init__(self) -> None:
        section, points = "objective", self.regulariser_points
        require(
            points == "all" or (isinstance(points, int) and points >= 1),
            f"{section}.regulariser_points",
            f'must be "all" or a number of points, 1 or more, not {points!r}',
        )
        require_probability(section, negligible=self.negligible)
        require(
            self.backend in ("auto", "torch", "k2", "fast_rnnt"),
            f"{section}.backend",
            f'must be "auto", "torch", "k2" or "fast_rnnt", not "{self.backend}"',
        )


@dataclass(frozen=True)
class OptimiserConfig:
    """Optimiser and learning rate.

    Attributes:
        kind: "eve" decays only what has outgrown its target size, "adamw" is torch's
        initial_lr: learning rate before Eden's decay
        front_end_lr: the same for a pretrained front end that is trained along; its tensors are never shrunk
        lr_updates: updates after which the learning rate starts to fall
        lr_epochs: epochs after which the learning rate starts to fall
        cooldown_epochs: epochs at the end of training over which the learning rate falls to 0 besides, and Eve's
            shrinkage with it; 0 for none. Where the end is follows from training.epochs, which should not change once
            this has begun
        beta1: decay of the running mean of gradients
        beta2: decay of the running mean of squared gradients
        eps: added to the root of the mean square
        weight_decay: Eve's shrinkage per step of outgrown tensors, or AdamW's decay relative to the learning rate
        target_rms: root mean square above which Eve shrinks a tensor
        warmup_updates: updates over which the encoder's layers are faded in
    """

    kind: Literal["eve", "adamw"] = "eve"
    initial_lr: float = 0.003
    front_end_lr: float = 0.0001
    lr_updates: float = 5000.0
    lr_epochs: float = 6.0
    cooldown_epochs: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-8
    weight_decay: float = 1e-3
    target_rms: float = 0.1
    warmup_updates: int = 3000

    def __post_init__(self) -> None:
        section = "optimiser"
        require(self.kind in ("eve", "adamw"), f"{section}.kind", f'must be "eve" or "adamw", not "{self.kind}"')
        require_positive(
            section,
            initial_lr=self.initial_lr,
            front_end_lr=self.front_end_lr,
            lr_updates=self.lr_updates,
            lr_epochs=self.lr_epochs,
            eps=self.eps,
            target_rms=self.target_rms,
            warmup_updates=self.warmup_updates,
        )
        require_probability(section, beta1=self.beta1, beta2=self.beta2, weight_decay=self.weight_decay)
        cooldown = self.cooldown_epochs
        is_number = cooldown >= 0 and isfinite(cooldown)
        require(is_number, f"{section}.cooldown_epochs", f"must be 0 or more, not {cooldown}")

    def cooldown_at(self, epochs_left: Fraction | float) -> float:
        """The share of the learning rate so many epochs before the end: 1, then linearly down to 0."""
        return min(1.0, float(epochs_left) / self.cooldown_epochs) if self.cooldown_epochs > 0 else 1.0


@dataclass(frozen=True)
class TrainingConfig:
    """The loop.

    Attributes:
        epochs: epochs in all, those before a branch included
        encoder_from: checkpoint whose encoder, and pretrained front end if any, a new run begins with; null for none
        predictor_from: checkpoint whose predictor and joiner a new run begins with; null for new ones
        seed: of parameters and of everything random in a step; each step's draws depend on it and on the step alone
        precision: of the encoder under autocast; sums over lattices are always float32. On a CPU only float32 is fast
        accumulate: batches per update of the parameters
        clip: largest norm of the gradient; null for no limit
        log_interval: updates between lines of the log
        validate_interval: updates between validations; every epoch also ends with one
        validation_sets: names of the dev parts that are validated on, and so choose the best epoch; null for all
        validation_utterances: how many are validated on, equally many of each part; "all" for all of them
        validation_random: whether these are drawn at random, the same ones in all runs, or the first ones
        validation_beam: hypotheses in the search for the word error rate
        save_interval: updates between checkpoints; every epoch also ends with one, which is kept
        keep_last: checkpoints within epochs that are kept
        keep_epochs: newest checkpoints at the end of epochs that are kept, besides the best one; null for all. Averages
            over epochs need the checkpoint before the first of them
        keep_always: epochs that are kept in any case, such as those that other runs branch off from
        average_period: updates between additions to the running average of the parameters
        max_bad_batches: updates of one epoch without a finite gradient after which training gives up
        collapse_share: the reference's share of Z above which competitors count as useless
        collapse_updates: updates in a row of that before a warning
        memory_scan: try the largest batches before the first update
        hang_timeout: seconds that a rank waits for another before all are restarted from the last checkpoint; longer
            than the longest validation or writing of a checkpoint
    """

    epochs: int = may_change(40)
    encoder_from: str | None = may_change(None)
    predictor_from: str | None = may_change(None)
    seed: int = 42
    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    accumulate: int = 1
    clip: float | None = None
    log_interval: int = may_change(50)
    validate_interval: int = may_change(3000)
    validation_sets: list[str] | None = may_change(None)  # noqa: RUF009 (nobody changes it)
    validation_utterances: int | Literal["all"] = may_change(500)
    validation_random: bool = may_change(False)
    validation_beam: int = may_change(4)
    save_interval: int = may_change(1000)
    keep_last: int = may_change(3)
    keep_epochs: int | None = may_change(None)
    keep_always: tuple[int, ...] = may_change(())
    average_period: int = 100
    max_bad_batches: int = may_change(20)
    collapse_share: float = may_change(0.9999)
    collapse_updates: int = may_change(200)
    memory_scan: bool = may_change(True)
    hang_timeout: float = may_change(1800.0)

    def __post_init__(self) -> None:
        names = (
            "epochs accumulate log_interval validate_interval validation_beam save_interval keep_last average_period "
            "max_bad_batches collapse_share collapse_updates hang_timeout"
        )
        require_positive("training", **{name: getattr(self, name) for name in names.split()})
        count = self.validation_utterances
        require(
            count == "all" or (isinstance(count, int) and count >= 1),
            "training.validation_utterances",
            f'must be "all" or a number of utterances, 1 or more, not {count!r}',
        )
        kept = self.keep_epochs
        require(kept is None or kept >= 1, "training.keep_epochs", f"must be 1 or more, or null, not {kept}")
        require(self.clip is None or self.clip > 0, "training.clip", f"must be above 0, or null, not {self.clip}")
