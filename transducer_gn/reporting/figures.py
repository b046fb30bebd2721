"""The paper's figures: training as it goes, and how good N-best lists are as normalisers."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes

from transducer_gn.evaluation.coverage import Coverage
from transducer_gn.reporting.figure import COLOURS, GLOBAL, LOCAL, SHADE, STYLE, ReportFigure, new_figure
from transducer_gn.reporting.runs import Run, normalisation_text

EPOCHS_BEFORE = 3


def series(rows: Iterable[dict[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Epochs and values of a metric, where it was logged."""
    points = [(row["epoch"], row[name]) for row in rows if isinstance(row.get(name), int | float)]
    return [x for x, _ in points], [y for _, y in points]


def ramp(run: Run) -> tuple[float, float] | None:
    """Epochs between which the regulariser's weight rises; None if it does not."""
    if run.config is None or run.config.normalisation.regulariser == 0:
        return None
    return run.branch_epoch, run.branch_epoch + run.config.normalisation.regulariser_ramp


def shade(axes: Sequence[Axes], span: tuple[float, float] | None) -> None:
    """Mark the time in which the regulariser's weight rises."""
    if span is not None:
        for axis in axes:
            axis.axvspan(*span, color=SHADE, zorder=0)


def prior_note(run: Run) -> str:
    """What else is in the loss of the first epochs."""
    if run.config is None or run.config.alignment.diagonal_prior == 0:
        return ""
    return f" Up to epoch {run.config.alignment.diagonal_epochs:g} it includes the prior on alignments."


@rc_context(STYLE)
def learning_figure(runs: Sequence[Run]) -> ReportFigure | None:
    """Losses of local runs on what they learn from and on the dev set, and the dev set's error rate."""
    shown = [run for run in runs if run.is_local and run.train and run.valid]
    if not shown:
        return None
    figure, (upper, lower) = new_figure(2, 5.2)
    for run, colour in zip(shown, COLOURS * len(shown), strict=False):
        upper.plot(*series(with_model_loss(run.train), "model_loss"), color=colour, linewidth=0.8, label=run.name)
        # Validations are at alpha 1, where the score of the reference is all there is to the loss.
        losses = [row | {"model_loss": -row["numerator"]} for row in run.valid if "numerator" in row]
        upper.plot(*series(losses, "model_loss"), "--", color=colour, marker="o", markersize=3, label="_dev")
        lower.plot(*series(run.valid, "wer"), color=colour, marker="o", markersize=3)
    upper.set_yscale("log")
    upper.set_ylabel("loss per frame")
    upper.legend(fontsize=8)
    lower.set_ylim(0, upper_limit(series([row for run in shown for row in run.valid], "wer")[1]))
    lower.set_ylabel("dev WER, %")
    lower.set_xlabel("epoch")
    caption = (
        "Learning curves of local runs. Above: the loss without regulariser, in training (with its masks and noise) "
        "and, broken, on the dev set. Below: word error rates on the dev set as training saw them."
    )
    return ReportFigure("learning", figure, caption)


@rc_context(STYLE)
def regulariser_figure(run: Run, baseline: Run | None, runs: Sequence[Run]) -> ReportFigure | None:
    """The squared log-sums while the regulariser comes in, and the loss meanwhile."""
    if not run.train:
        return None
    figure, (upper, lower) = new_figure(2, 4.6)
    shade((upper, lower), ramp(run))
    for other, colour in ((baseline, LOCAL), (run, GLOBAL)):
        if other is not None and other.train:
            rows = with_model_loss(train_before_branch(other, runs) + other.train)
            upper.plot(*series(rows, "regulariser"), color=colour, label=f"{other.name}: {normalisation_text(other)}")
            lower.plot(*series(rows, "model_loss"), color=colour)
    upper.set_yscale("log")
    upper.set_ylabel("mean of log-sum²")
    upper.legend(fontsize=8)
    lower.set_ylabel("loss per frame")
    lower.set_xlabel("epoch")
    caption = (
        "Regularising the square of the log-sums of output vectors: the model becomes roughly normalised. Shaded: the "
        "time in which the regulariser's weight rises. The loss is without the regulariser."
    ) + prior_note(run)
    return ReportFigure("regulariser", figure, caption)


@rc_context(STYLE)
def interpolation_figure(run: Run, runs: Sequence[Run]) -> ReportFigure | None:
    """Alpha on its way, and the loss with it."""
    if not run.train:
        return None
    rows = with_model_loss(train_before_branch(run, runs) + run.train)
    figure, (upper, lower) = new_figure(2, 4.2)
    shade((upper, lower), ramp(run))
    upper.plot(*series(rows, "alpha"), color=GLOBAL)
    upper.set_ylabel("alpha")
    upper.set_ylim(0, 1.05)
    lower.plot(*series(rows, "model_loss"), color=GLOBAL)
    lower.set_ylabel("loss per frame")
    lower.set_xlabel("epoch")
    caption = (
        f"From local (alpha 1) to global normalisation (alpha {run.alpha:g}) in {run.name}, and the loss without "
        "regulariser. Losses at different alpha cannot be compared strictly: Z is a sum over the competitors that were "
        "found."
    ) + prior_note(run)
    return ReportFigure("interpolation", figure, caption)


@rc_context(STYLE)
def wer_figure(name: str, lines: Sequence[tuple[str, Run]], runs: Sequence[Run], caption: str) -> ReportFigure | None:
    """Word error rates on the dev set while training, for labelled runs."""
    lines = [(label, run) for label, run in lines if run.valid]
    if not lines:
        return None
    figure, (axis,) = new_figure()
    colours = iter(COLOURS * len(lines))
    for label, run in lines:
        epochs, rates = series(before_branch(run, runs) + run.valid, "wer")
        colour = LOCAL if run.is_local else next(colours)
        style = "-" if not run.is_local or run.branch_epoch == 0 else "--"
        axis.plot(epochs, rates, style, color=colour, label=label, marker="o", markersize=3)
    start = min((run.branch_epoch for _, run in lines if run.branch_epoch), default=0)
    later = [row for _, run in lines for row in run.valid if row["epoch"] >= start]
    axis.set_ylim(0, upper_limit(series(later, "wer")[1]))
    axis.set_xlabel("epoch")
    axis.set_ylabel("dev WER, %")
    axis.legend(fontsize=8)
    return ReportFigure(name, figure, caption)


def upper_limit(rates: Sequence[float]) -> float:
    """Leaves out the first epochs of a training from nothing, which would flatten all else."""
    ordered = sorted(rate for rate in rates if math.isfinite(rate))
    middle = ordered[len(ordered) // 2] if ordered else 1.0
    return max(min(ordered[-1] if ordered else 1.0, 4 * middle) * 1.05, 1.0)


def origin(run: Run, runs: Sequence[Run]) -> Run | None:
    """The local run that a run branched off from."""
    if run.branch_epoch == 0 or run.config is None:
        return None
    model = run.config.model
    alike = [r for r in runs if r.is_local and r.branch_epoch == 0 and r.config is not None and r.config.model == model]
    return next(iter(alike), None)


def before_branch(run: Run, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The validation at which a run branched off, from the run that it came from."""
    start = origin(run, runs)
    return [row for row in start.valid if row["epoch"] == run.branch_epoch][:1] if start else []


def train_before_branch(run: Run, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Training metrics of the epochs before a run branched off."""
    start = origin(run, runs)
    first = run.branch_epoch - EPOCHS_BEFORE
    return [row for row in start.train if first <= row["epoch"] <= run.branch_epoch] if start else []


def with_model_loss(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with "model_loss", the loss per frame without the regulariser.

    While alpha is 1 that is the numerator alone; later the regulariser's weight is constant and can be taken off.
    """
    return [
        row
        | {
            "model_loss": -row["numerator"]
            if row["alpha"] == 1
            else row["loss"] - row["regulariser_weight"] * row["regulariser"]
        }
        for row in rows
        if {"alpha", "numerator", "loss", "regulariser", "regulariser_weight"} <= row.keys()
    ]


@rc_context(STYLE)
def coverage_figure(lines: Sequence[tuple[str, Sequence[Coverage]]]) -> ReportFigure:
    """N-best lists against exact Z, for labelled systems."""
    figure, (upper, lower) = new_figure(2, 5.2)
    for (label, lists), colour in zip(lines, COLOURS * len(lines), strict=False):
        counts = [x.count for x in lists]
        upper.plot(counts, [x.mean_share() for x in lists], color=colour, label=label, marker="o", markersize=3)
        lower.plot(counts, [x.distance for x in lists], color=colour, marker="o", markersize=3)
    upper.set_xscale("log")
    counts = sorted({x.count for _, lists in lines for x in lists})
    upper.set_xticks(counts, [str(count) for count in counts])
    upper.minorticks_off()
    upper.set_ylim(0, 1.03)
    upper.set_ylabel("share of exact Z")
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    lower.set_ylim(bottom=0)
    lower.set_ylabel("distance of gradients")
    lower.set_xlabel("competitors N")
    caption = (
        "How good N-best lists are as normalisers. Above: the share of exact Z that the reference and N competitors "
        "have, mean over utterances. Below: the distance of the gradient of the loss with such a list from that of the "
        "loss with exact Z, relative to the latter's norm."
    )
    return ReportFigure("nbest-coverage", figure, caption)
