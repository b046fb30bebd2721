"""The same comparison from several seeds: does it hold whatever the initial parameters and the order of batches?

Each seed has an experiment folder of its own with runs of the same names. Utterances are the same for all, so errors
are averaged over seeds before utterances are drawn anew. Beside that interval, which is about other utterances, stands
one about other seeds, and the change of every single seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from transducer_gn.common.errors import UserError
from transducer_gn.evaluation.bootstrap import Difference, Interval, ratio_difference
from transducer_gn.reporting.comparisons import error_differences, latency_difference
from transducer_gn.reporting.runs import Run, named
from transducer_gn.reporting.system_tables import measure_name
from transducer_gn.reporting.table import Table, p_text, signed

EMISSION = "emission, all tokens, ms"


@dataclass(frozen=True)
class OverSeeds:
    """One measure.

    Attributes:
        mean: both systems' values averaged over seeds, and the change with its interval over utterances; None for times
        first: the first system's value of each seed
        second: the second system's value of each seed
    """

    mean: Difference | None
    first: list[float]
    second: list[float]

    @property
    def changes(self) -> list[float]:
        """How the second system differs from the first, by seed."""
        return [second - first for first, second in zip(self.first, self.second, strict=True)]

    @property
    def change(self) -> Interval:
        """Mean change with its 95 % interval over seeds."""
        return student_interval(self.changes)

    def values(self) -> dict[str, Any]:
        """All of it, for programs."""
        return asdict(self) | {"changes": self.changes, "change_over_seeds": asdict(self.change)}


def student_interval(values: Sequence[float]) -> Interval:
    """The mean of independent values with its 95 % interval by Student's t, which is NaN for a single one."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, float("nan"), float("nan"))
    reach = float(stdtrit(count - 1, 0.975) * np.std(values, ddof=1) / count**0.5)
    return Interval(mean, mean - reach, mean + reach)


def compare_over_seeds(
    roots: Sequence[Sequence[Run]], baseline: str, challenger: str, part: str
) -> dict[str, OverSeeds]:
    """Measures of the runs of two names, by name of the measure; UserError if a folder lacks one of the two.

    Args:
        roots: the runs of each seed's folder
    """
    sides = [(named(runs, baseline, "--baseline"), named(runs, challenger, "--challenger")) for runs in roots]
    for run in (run for both in sides for run in both):
        if part not in run.results:
            raise UserError(f"--seeds: {run.folder} has not been decoded on {part}; run decode.py first")
    per_seed = [error_differences(a, b, part) for a, b in sides]
    result = {}
    for name in per_seed[0]:
        if any(name not in other for other in per_seed):
            raise UserError(f"--seeds: the folders were not decoded on the same utterances of {part}; decode all again")
        result[name] = OverSeeds(
            averaged(sides, part, name), [x[name].first for x in per_seed], [x[name].second for x in per_seed]
        )
    found = [latency_difference(a, b, part) for a, b in sides]
    emission = [latency.emission["all"] for latency in found if latency is not None]
    if len(emission) == len(sides):
        result[EMISSION] = OverSeeds(None, [x.first for x in emission], [x.second for x in emission])
    return result


def averaged(sides: Sequence[tuple[Run, Run]], part: str, name: str) -> Difference:
    """The change of the mean over seeds, utterances drawn anew."""
    found = [[run.measures(part)[name] for run in both] for both in sides]
    first, words = found[0][0].ids, found[0][0].words
    if any(measure.ids != first for both in found for measure in both):
        raise UserError(f"--seeds: the folders were not decoded on the same utterances of {part}; decode all again")
    means = [np.mean([100 * both[side].errors for both in found], axis=0) for side in (0, 1)]
    return ratio_difference(means[0], means[1], words)


def seeds_table(compared: Mapping[str, OverSeeds], names: tuple[str, str], part: str) -> Table:
    """Means over seeds, and every seed's own change."""
    rows = []
    for name, over in compared.items():
        label, decimals = (name, 1) if name == EMISSION else (measure_name(name), 2)
        drawn = over.mean.change if over.mean else None
        rows.append(
            [
                label,
                f"{np.mean(over.first):.{decimals}f}",
                f"{np.mean(over.second):.{decimals}f}",
                signed(over.change.value, decimals),
                f"{signed(drawn.low)} to {signed(drawn.high)}" if drawn else "–",
                p_text(over.mean.p_value) if over.mean else "–",
                seeds_cell(over.change, decimals),
                ", ".join(signed(value, decimals) for value in over.changes),
            ]
        )
    count = len(next(iter(compared.values())).first)
    columns = ["mean over seeds", *names, "change", "95 % interval", "p", "95 % over seeds", "change of each seed"]
    notes = [
        "Interval and p: utterances drawn anew, errors averaged over seeds. They say nothing about other seeds.",
        "Over seeds: Student's t over the changes of the seeds, on these utterances. It says nothing about others.",
    ]
    return Table(f"{count} seeds on {part}", columns, rows, notes)


def seeds_cell(change: Interval, decimals: int) -> str:
    """The interval over seeds as text; a dash for none."""
    return "–" if change.low != change.low else f"{signed(change.low, decimals)} to {signed(change.high, decimals)}"
