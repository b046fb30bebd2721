"""The points of curves of errors against delay: runs with chunks of several sizes, and what of them can be compared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from transducer_gn.evaluation.bootstrap import Interval, ratio_interval
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency, mean_emission
from transducer_gn.evaluation.results import Results
from transducer_gn.evaluation.stability_results import is_aligned, median_settled, summarise, was_live
from transducer_gn.evaluation.sweeps import CHUNKS, Point
from transducer_gn.reporting.runs import Run, attempt
from transducer_gn.reporting.stability_tables import ends_note

# Of a live text: how late, and how unsteady; with their names in the table and their decimals.
DELAY, REVISIONS = "settled_p50_ms", "revisions_per_word"
LIVE = {
    DELAY: ("last changed, p50, ms", 0),
    "settled_p90_ms": ("p90", 0),
    REVISIONS: ("revisions/word", 3),
}

# Points of runs, before anything is computed of them.
Measured = Sequence[tuple[Run, Point]]


@dataclass(frozen=True)
class Operated:
    """A run with chunks of one size.

    Attributes:
        run: its name
        folder: that its folder is in
        chunk: milliseconds of a chunk, and of what is heard after it
        errors: error rates in per cent by name: all words, and what the corpus counts apart
        emission: mean expected emission times in ms of the tokens of the same names; empty where not measured
        live: by the names of `LIVE`, without delays where nothing says when words end; empty where not measured
        delays: the median delay in ms until words of the same names last changed; empty like those of `live`
    """

    run: str
    folder: str
    chunk: str
    errors: dict[str, Interval]
    emission: dict[str, Interval]
    live: dict[str, Interval]
    delays: dict[str, Interval] = field(default_factory=dict)

    def place(self, name: str, over: str) -> tuple[float, float] | None:
        """A delay and an error rate; None unless both were measured.

        Args:
            name: of the error rate
            over: `DELAY`, or "" for the emission time of the same words
        """
        both = (self.delays if over else self.emission).get(name), self.errors.get(name)
        values = [value.value for value in both if value is not None and not math.isnan(value.value)]
        return (values[0], values[1]) if len(values) == len(both) else None


@dataclass(frozen=True)
class TradeOff:
    """What was measured of all runs with chunks of several sizes.

    Attributes:
        points: run by run
        notes: where the ends of words come from, and what is missing or not as it should be
    """

    points: list[Operated] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def curves(self, name: str, over: str) -> dict[str, list[tuple[tuple[float, float], str]]]:
        """Of each run, where its points are and their chunks, from left to right; see `Operated.place`."""
        found: dict[str, list[tuple[tuple[float, float], str]]] = {}
        for point in self.points:
            if (place := point.place(name, over)) is not None:
                found.setdefault(point.run, []).append((place, point.chunk))
        return {run: sorted(curve) for run, curve in found.items()}

    def values(self) -> list[dict[str, Any]]:
        """The points, for programs."""
        return [asdict(point) for point in self.points]


@dataclass(frozen=True)
class Aligner:
    """What says when words end where the corpus does not.

    Attributes:
        name: of the baseline; None where there is none
        utterances: by id, those that were measured of it, with its own chunks or others
    """

    name: str | None
    utterances: Mapping[str, UtteranceTimes]

    def can_align(self, latency: Latency) -> bool:
        """Whether the ends of all words are known, from the corpus or from the baseline."""
        return is_aligned(latency.utterances) or all(u.id in self.utterances for u in latency.utterances)

    def aligned(self, latency: Latency) -> list[UtteranceTimes]:
        """The utterances under what aligns them."""
        return [self.utterances.get(utterance.id, utterance) for utterance in latency.utterances]

    def note(self, run: Run, latency: Latency) -> str:
        """Where the ends of words come from, or why there are no delays."""
        if self.can_align(latency):
            return ends_note(latency, self.name or "a baseline")
        if self.name is None:
            return f"{run.folder}: no delays, since the corpus has no alignments and there is no baseline, which aligns"
        if not self.utterances:
            return f"{run.folder}: no delays, since no times were measured of the baseline, which aligns"
        return f"{run.folder}: no delays, since the baseline, which aligns, was measured on other utterances"


def find_trade_off(roots: Sequence[Sequence[Run]], part: str, baseline: Run | None) -> TradeOff:
    """What was measured on a set.

    Args:
        roots: the runs of a folder, and those of folders whose systems were trained for other chunks: runs of the same
            name are one curve
        baseline: what aligns references where the corpus does not
    """
    nothing: list[Point] = []
    notes: list[str] = []
    found = [
        (run, point)
        for runs in roots
        for run in runs
        for point in attempt(partial(CHUNKS.find, run.folder, part), nothing, notes)
    ]
    notes += disagreements(found)
    aligner = Aligner(baseline.name if baseline is not None else None, aligned_utterances(baseline, part))
    measured = over_common_utterances(found, notes)
    for run, latency in ((run, point.latency) for run, point in measured):
        if latency is not None and was_live(latency.utterances):
            notes.append(aligner.note(run, latency))
    return TradeOff([operated(run, point, aligner) for run, point in measured], list(dict.fromkeys(notes)))


def disagreements(measured: Measured) -> list[str]:
    """Sentences about points that differ in more than the chunk."""
    notes = []
    by_folder: dict[str, list[Mapping[str, Any]]] = {}
    for run, point in measured:
        by_folder.setdefault(str(run.folder), []).append(point.results.identity)
    for folder, identities in by_folder.items():
        flat = [
            {name: value for name, value in identity.items() if name != "settings"} | search_settings(identity)
            for identity in identities
        ]
        if names := differing(flat):
            notes.append(f"{folder}: chunks were measured with different {', '.join(names)}; measure all again")
    # Each run has parameters of its own; how it is searched is to be the same, and on what.
    if names := differing([search_settings(identities[0]) for identities in by_folder.values()]):
        notes.append(f"Runs were measured with different {', '.join(names)}: no fair comparison; measure all again")
    if len({frozenset((u.id, *u.reference) for u in point.results.utterances) for _, point in measured}) > 1:
        notes.append("Errors of some points are on other utterances than those of the rest; decode all again")
    tokens: dict[str, list[str]] = {}
    timed = [u for _, point in measured if point.latency is not None for u in point.latency.utterances]
    if any(tokens.setdefault(utterance.id, utterance.tokens) != utterance.tokens for utterance in timed):
        notes.append("Runs have different tokens, whose emission times cannot be compared; delays of words can")
    return notes


def search_settings(identity: Mapping[str, Any]) -> dict[str, Any]:
    """How a point was searched, but for its chunk, from what its results depend on."""
    settings = identity.get("settings")
    found = settings if isinstance(settings, Mapping) else {}
    return {name: value for name, value in found.items() if name != "chunk"}


def differing(identities: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of values that are not the same in all, as words."""
    names = dict.fromkeys(name for identity in identities for name in identity)
    return [name.replace("_", " ") for name in names if len({str(identity.get(name)) for identity in identities}) > 1]


def over_common_utterances(measured: Measured, notes: list[str]) -> Measured:
    """The points with the times of those utterances alone that were measured of all; a note says so, or why not."""
    timed = [{u.id for u in point.latency.utterances} for _, point in measured if point.latency is not None]
    common = set.intersection(*timed) if timed else set()
    if all(ids == common for ids in timed):
        return measured
    if not common:
        notes.append("Times of some points are of other utterances than those of the rest; measure all again")
        return measured
    notes.append(f"Times are those of the {len(common)} utterances that were measured with all points.")
    return [(run, replace(point, latency=limited(point.latency, common))) for run, point in measured]


def limited(latency: Latency | None, ids: set[str]) -> Latency | None:
    """The times of some utterances."""
    if latency is None:
        return None
    return replace(latency, utterances=[utterance for utterance in latency.utterances if utterance.id in ids])


def operated(run: Run, point: Point, aligner: Aligner) -> Operated:
    """What is computed of a point of a run."""
    latency = point.latency
    return Operated(
        run.name,
        str(run.folder.parent),
        chunk_text(run, point.number),
        error_rates(run, point.results),
        {} if latency is None else emission_times(run, latency),
        {} if latency is None else live_measures(latency, aligner),
        {} if latency is None else live_delays(run, latency, aligner),
    )


def aligned_utterances(baseline: Run | None, part: str) -> dict[str, UtteranceTimes]:
    """By id, the utterances that were measured of the baseline, with its own chunks or others."""
    if baseline is None:
        return {}
    nothing: list[Point] = []
    points = attempt(partial(CHUNKS.find, baseline.folder, part), nothing, [])
    own = [baseline.latencies.get(part), *(point.latency for point in points)]
    return {utterance.id: utterance for latency in reversed(own) if latency is not None
            for utterance in latency.utterances}  # fmt: skip


def chunk_text(run: Run, frames: int) -> str:
    """Milliseconds of a chunk, and of what is heard after it."""
    if run.config is None:
        return f"{frames} frames"
    framing = run.config.model.front_end.framing
    right = f" + {1000 * framing.right_seconds:.0f}" if framing.right else ""
    return f"{1000 * framing.frame_shift * frames:.0f}{right} ms"


def error_rates(run: Run, results: Results) -> dict[str, Interval]:
    """Error rates in per cent by name: all words, and what the corpus counts apart."""
    measures = results.measures() | run.extras.measures(results.utterances)
    chosen = [name for name in ("all", *run.extras.key_tokens) if name in measures]
    return {name: ratio_interval(measures[name].errors, measures[name].words).scaled(100) for name in chosen}


def emission_times(run: Run, latency: Latency) -> dict[str, Interval]:
    """Mean expected emission times in milliseconds, of the tokens of the same names."""
    choices = run.extras.token_choices(latency.utterances)
    return {"all": mean_emission(latency)} | {name: mean_emission(latency, mask) for name, mask in choices.items()}


def live_measures(latency: Latency, aligner: Aligner) -> dict[str, Interval]:
    """How late and how unsteady a live text is, by the names of `LIVE`: as much as can be said."""
    if not was_live(latency.utterances):
        return {}
    names = LIVE if aligner.can_align(latency) else (REVISIONS,)
    return summarise(latency.utterances, aligner.aligned(latency), names=names)


def live_delays(run: Run, latency: Latency, aligner: Aligner) -> dict[str, Interval]:
    """The median delay until words last changed: of all words, and of those that the corpus counts apart."""
    if not was_live(latency.utterances) or not aligner.can_align(latency):
        return {}
    everything = {"all": [[True] * len(u.tokens) for u in latency.utterances]}
    choices = run.extras.token_choices(latency.utterances)
    chosen = everything | {name: choices[name] for name in run.extras.key_tokens if name in choices}
    return median_settled(latency.utterances, aligner.aligned(latency), chosen)
