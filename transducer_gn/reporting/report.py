"""A report on all runs of an experiment folder: which tables and figures there are, and their files."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import write_text
from transducer_gn.common.json_files import write_json
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.latency_results import summary_values
from transducer_gn.evaluation.results import measure_summary
from transducer_gn.reporting import figures, tables
from transducer_gn.reporting.comparisons import comparison_values
from transducer_gn.reporting.extras import Comparison, Evaluated
from transducer_gn.reporting.figure import ReportFigure
from transducer_gn.reporting.operating_points import TradeOff, find_trade_off
from transducer_gn.reporting.over_seeds import compare_over_seeds, seeds_table
from transducer_gn.reporting.page import html_page
from transducer_gn.reporting.runs import Run, choose_lookahead, headline_set
from transducer_gn.reporting.stability_tables import runs_stability_table
from transducer_gn.reporting.table import Table
from transducer_gn.reporting.trade_off import trade_off_figures, trade_off_table


@dataclass(frozen=True)
class Report:
    """What goes into the files.

    Attributes:
        key: the one table that says it all, if there are a local and a global system to compare
        values: the same for programs
    """

    title: str
    key: Table | None
    tables: list[Table]
    figures: list[ReportFigure]
    values: dict[str, Any]

    def text(self) -> str:
        """All tables."""
        shown = ([self.key] if self.key else []) + self.tables
        return "\n\n".join([self.title, *(table.text() for table in shown)])


@dataclass(frozen=True)
class Others:
    """What else a report knows of, beside the runs of its folder.

    Attributes:
        seeds: runs of the same names from other seeds, one list for each
        beside: runs of the same names that were trained for other chunks, one list for each folder
        lookaheads: names of the runs that hear whole utterances, where an experiments file says so
    """

    seeds: Sequence[Sequence[Run]] = ()
    beside: Sequence[Sequence[Run]] = ()
    lookaheads: Sequence[str] = ()


NO_OTHERS = Others()


@dataclass(frozen=True)
class Pair:
    """The local and the global system to compare, on a set that both were decoded on.

    Attributes:
        part: the test set
    """

    baseline: Run
    challenger: Run
    part: str

    def figures(self, data_dir: Path | None) -> list[ReportFigure]:
        """What the corpus adds; none where neither a flag nor a checkpoint says where the data is."""
        if data_dir is None:
            if self.challenger.config is None:
                return []
            data_dir = Path(self.challenger.config.data.folder)
        comparison = Comparison(self.baseline.folder, self.challenger.folder, PreparedData(data_dir), self.part)
        return self.challenger.extras.figures(comparison)


def comparable(baseline: Run | None, challenger: Run | None, part: str | None) -> Pair | None:
    """The two systems, if both were decoded on the set."""
    if baseline is None or challenger is None or part is None:
        return None
    both = part in baseline.results and part in challenger.results
    return Pair(baseline, challenger, part) if both else None


def make_report(
    title: str,
    runs: Sequence[Run],
    baseline: Run | None,
    challenger: Run | None,
    data_dir: Path | None,
    others: Others = NO_OTHERS,
) -> Report:
    """Gather everything. What cannot be shown is said in the table of runs.

    Args:
        data_dir: what both systems were evaluated on; None for what they were trained on
    """
    part = headline_set(runs)
    pair, key = comparable(baseline, challenger, part), None
    values = run_values(runs)
    if pair is not None:
        try:
            lookahead = choose_lookahead(runs, part, others.lookaheads)
            key = tables.key_table(pair.baseline, pair.challenger, pair.part, lookahead)
            values["comparison"] = comparison_values(pair.baseline, pair.challenger, pair.part, lookahead)
        except UserError as error:
            pair.challenger.problems.append(str(error))
    shown: list[Table] = []
    if others.seeds and pair is not None and key is not None:
        names = pair.baseline.name, pair.challenger.name
        compared = compare_over_seeds([runs, *others.seeds], *names, pair.part)
        shown.append(seeds_table(compared, names, pair.part))
        values["seeds"] = {name: over.values() for name, over in compared.items()}
    shown += [tables.results_table(runs, baseline)] if part is not None else []
    if part is not None:
        found = tables.groups_table(runs, part), runs_stability_table(runs, baseline, part)
        shown += [table for table in found if table is not None]
    trade_off = find_trade_off([runs, *others.beside], part, baseline) if part is not None else TradeOff()
    if (traded := trade_off_table(trade_off, part or "")) is not None:
        shown.append(traded)
        values["trade_off"] = trade_off.values()
    added = evaluated(runs, part)
    shown += runs[0].extras.tables(added) if added else []
    shown += [tables.time_table(runs, baseline), tables.runs_table(runs)]
    shown += [tables.public_table()] if tables.is_librispeech(runs) else []
    drawn = training_figures(runs, baseline, challenger)
    if pair is not None and key is not None:
        drawn += pair.figures(data_dir)
    drawn += runs[0].extras.training_figures(added) if added else []
    drawn += trade_off_figures(trade_off)
    return Report(title, key, shown, drawn, values)


def evaluated(runs: Sequence[Run], part: str | None) -> list[Evaluated]:
    """The runs that were decoded on a set, as what a corpus adds to a report sees them."""
    return [
        Evaluated(run.name, run.folder, run.results[part], run.latencies.get(part))
        for run in sorted(runs, key=tables.order)
        if part is not None and part in run.results
    ]


def training_figures(runs: Sequence[Run], baseline: Run | None, challenger: Run | None) -> list[ReportFigure]:
    """Learning curves and the paper's figures, as far as there are runs for them."""
    curves = figures.learning_figure(runs)
    if challenger is None:
        return [] if curves is None else [curves]
    plain = [run for run in runs if run.is_plain and not run.is_mwer]
    local = [("local" + (", continued" if run.branch_epoch else ""), run) for run in plain if run.is_local]
    alike = [run for run in plain if not run.is_local and same_regulariser(run, challenger)]
    by_alpha = [
        r for r in alike if (r.branch_epoch, r.competitors) == (challenger.branch_epoch, challenger.competitors)
    ]
    by_branch = [r for r in alike if (r.alpha, r.competitors) == (challenger.alpha, challenger.competitors)]
    by_count = [r for r in alike if (r.alpha, r.branch_epoch) == (challenger.alpha, challenger.branch_epoch)]
    found = [
        figures.regulariser_figure(challenger, baseline, runs),
        figures.interpolation_figure(challenger, runs),
        figures.wer_figure(
            "wer-by-alpha",
            local + [(f"alpha {run.alpha:g}", run) for run in sorted(by_alpha, key=lambda run: -run.alpha)],
            runs,
            "Word error rates on the dev set while training, by the interpolation weight alpha.",
        ),
        curves,
    ]
    if len({run.branch_epoch for run in by_branch}) > 1:
        lines = [
            (f"branched after epoch {run.branch_epoch}", run) for run in sorted(by_branch, key=lambda r: r.branch_epoch)
        ]
        caption = f"Word error rates on the dev set for branching off earlier or later, alpha {challenger.alpha:g}."
        found.append(figures.wer_figure("wer-by-branch-epoch", local + lines, runs, caption))
    if len({run.competitors for run in by_count}) > 1:
        lines = [(f"N {run.competitors}", run) for run in sorted(by_count, key=lambda run: run.competitors or 0)]
        caption = f"Word error rates on the dev set by number of competitors, alpha {challenger.alpha:g}."
        found.append(figures.wer_figure("wer-by-competitors", local + lines, runs, caption))
    if any(run.is_mwer for run in runs):
        lines = [(run.name, run) for run in sorted(runs, key=tables.order) if run.is_plain]
        caption = "Word error rates on the dev set by objective: likelihood, expected errors, or both."
        found.append(figures.wer_figure("wer-by-objective", lines, runs, caption))
    return [figure for figure in found if figure is not None]


def same_regulariser(run: Run, other: Run) -> bool:
    """Whether two runs differ in other things than the regulariser."""
    if run.config is None or other.config is None:
        return False
    return run.config.normalisation.regulariser == other.config.normalisation.regulariser


def run_values(runs: Sequence[Run]) -> dict[str, Any]:
    """What is known of each run, for programs."""
    return {
        "runs": {
            run.name: {
                "alpha": run.alpha,
                "competitors": run.competitors,
                "branch_epoch": run.branch_epoch,
                "updates": run.step,
                "finished": run.is_finished,
                "best": run.best,
                "seconds_per_epoch": run.seconds_per_epoch(),
                "problems": run.problems,
                "emission_ms": tables.emission_means(run),
                "stability": {part: summary_values(times).get("stability") for part, times in run.latencies.items()},
                "error_rates": {
                    part: {name: measure_summary(measure) for name, measure in run.measures(part).items()}
                    for part in run.results
                },
            }
            for run in runs
        }
    }


def write_report(report: Report, folder: Path) -> Path:
    """Write text, JSON, figures and the page; returns the page."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    images = {drawn.name: base64.b64encode(drawn.save(folder / "figures")).decode() for drawn in report.figures}
    write_text(folder / "report.txt", report.text())
    write_json(folder / "report.json", report.values)
    page = folder / "report.html"
    write_text(page, html_page(report.title, report.key, report.tables, [(x, images[x.name]) for x in report.figures]))
    return page
