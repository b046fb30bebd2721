"""Two runs compared on the same utterances: error rates, emission times, how they were searched."""

from dataclasses import asdict
from typing import Any

from transducer_gn.common.errors import UserError
from transducer_gn.evaluation.bootstrap import Difference, Interval, ratio_interval
from transducer_gn.evaluation.latency_results import LatencyDifference, compare_latency
from transducer_gn.evaluation.results import Results, compare_measures
from transducer_gn.reporting.runs import Run


def error_differences(first: Run, second: Run, part: str) -> dict[str, Difference]:
    """Paired tests of every measure, in per cent; UserError if the runs were not decoded on the same utterances."""
    return compare_measures(part, first.measures(part), second.measures(part))


def latency_difference(baseline: Run, run: Run, part: str) -> LatencyDifference | None:
    """The difference to the baseline; None if either was not measured or tokens differ."""
    if part not in baseline.latencies or part not in run.latencies:
        return None
    first, second = baseline.latencies[part], run.latencies[part]
    try:
        return compare_latency(first, second, baseline.extras.token_choices(first.utterances))
    except UserError:
        return None


def gap_closed(baseline: Run, challenger: Run, lookahead: Run, part: str) -> Interval | None:
    """Share, in per cent, of the baseline's errors beyond those with lookahead that the challenger avoids.

    None where there is no gap, or where the three were not decoded on the same utterances.
    """
    first, second, best = (run.results[part].measures()["all"] for run in (baseline, challenger, lookahead))
    if not first.ids == second.ids == best.ids or first.errors.sum() <= best.errors.sum():
        return None
    return ratio_interval(first.errors - second.errors, first.errors - best.errors).scaled(100)


def different_settings(first: Results, second: Results) -> list[str]:
    """A warning if two systems were not decoded alike, or a note if only as far as each one's training asks for."""
    if first.identity.get("settings") != second.identity.get("settings"):
        return [f"Careful: decoded with different settings, {first.system} and {second.system}."]
    limits = [results.identity.get("tokens_per_frame") for results in (first, second)]
    if limits[0] == limits[1] or None in limits:  # None: decoded before this was noted.
        return []
    return [f"Searched with at most {limits[0]} and {limits[1]} tokens per frame, each as its training asks for."]


def comparison_values(baseline: Run, challenger: Run, part: str, lookahead: Run | None) -> dict[str, Any]:
    """The key table, for programs."""
    differences = error_differences(baseline, challenger, part)
    latency = latency_difference(baseline, challenger, part)
    closed = gap_closed(baseline, challenger, lookahead, part) if lookahead else None
    return {
        "set": part,
        "baseline": baseline.name,
        "challenger": challenger.name,
        "error_rates": {
            name: asdict(difference) | {"relative": difference.relative} for name, difference in differences.items()
        },
        "latency": asdict(latency) if latency else None,
        "gap_closed": asdict(closed) if closed else None,
    }
