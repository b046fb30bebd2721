"""Results of decoding: what is measured of a test set, and the files that hold it.

For people there are the three files that icefall writes: `recogs` with references and hypotheses, `errs` with
alignments and counts by word, `wer-summary`. For programs there is `results`, with the same in JSON.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import write_text
from transducer_gn.common.json_files import read_json, write_json
from transducer_gn.common.protocols import IsDataclass
from transducer_gn.common.typed import typed
from transducer_gn.data.labels import group_of, unit_of
from transducer_gn.evaluation.bootstrap import Difference, ratio_difference, ratio_interval
from transducer_gn.recognition.error_rates import (
    EMPTY,
    AlignedPair,
    Measure,
    Recognised,
    align,
    count_errors,
    measures,
    total_errors,
)

Entry = TypeVar("Entry", bound=IsDataclass)


@dataclass(frozen=True)
class Results:
    """A test set as one system recognised it.

    Attributes:
        part: name of the test set
        system: what was recognised with, such as "epoch-30-streaming-chunk-size-16-left-context-64-beam-50"
        identity: everything that the hypotheses depend on
    """

    part: str
    system: str
    identity: dict[str, Any]
    utterances: list[Recognised]

    def measures(self) -> dict[str, Measure]:
        """Error rates by name: all words, and groups."""
        return measures(self.utterances)


def results_path(folder: Path, part: str, system: str) -> Path:
    """The JSON file of a test set."""
    return folder / f"results-{part}-{system}.json"


def write_results(folder: Path, results: Results) -> None:
    """Write all files of a test set; the JSON file last, so that where it is the others are, too."""
    name = f"{results.part}-{results.system}.txt"
    write_text(folder / f"recogs-{name}", recogs_text(results.utterances))
    write_text(folder / f"errs-{name}", errs_text(results.utterances))
    write_text(
        folder / f"wer-summary-{name}",
        f"settings\tWER\n{results.system}\t{total_errors(results.utterances).rate:.2f}\n",
    )
    content = {
        "part": results.part,
        "system": results.system,
        "identity": results.identity,
        "measures": {name: measure_summary(measure) for name, measure in results.measures().items()},
        "errors": asdict(total_errors(results.utterances)),
        "utterances": [asdict(utterance) for utterance in results.utterances],
    }
    write_json(results_path(folder, results.part, results.system), content)


def measure_summary(measure: Measure) -> dict[str, float | int]:
    """A rate in per cent with its 95 % interval, and its counts."""
    interval = ratio_interval(measure.errors, measure.words).scaled(100)
    return {
        "rate": interval.value,
        "low": interval.low,
        "high": interval.high,
        "errors": int(measure.errors.sum()),
        "words": int(measure.words.sum()),
        "utterances": measure.utterances,
    }


def read_results(path: Path) -> Results:
    """Read a `results` file; UserError if it is none."""
    try:
        content = read_json(path, dict[str, Any])
        utterances = [read_entry(Recognised, utterance) for utterance in typed(list, content["utterances"])]
        part, system = (typed(str, content[name]) for name in ("part", "system"))
        return Results(part, system, typed(dict[str, Any], content["identity"]), utterances)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} does not hold results of decode.py; delete it and decode again") from error


def read_entry(entry: type[Entry], values: Any) -> Entry:
    """What a file says about one utterance; in files of the first version the fields of `custom` stand with the others.

    ValueError, KeyError or TypeError if it is something else.

    Args:
        entry: a dataclass with the fields `group` and `custom`, and perhaps `unit`
    """
    values = typed(dict[str, Any], values)
    if "custom" in values:
        return typed(entry, values)
    names = {field.name for field in fields(entry)}
    custom = {name: value for name, value in values.items() if name not in names}
    found = {name: value for name, value in values.items() if name in names}
    found |= {"unit": unit_of(values["id"], custom)} if "unit" in names else {}
    found |= {"group": group_of(custom), "custom": custom}
    return typed(entry, found)


def find_results(place: Path) -> dict[str, Path]:
    """The newest `results` file of each test set, in an experiment folder or below it; or the file itself."""
    if place.is_file():
        return {read_results(place).part: place}
    found: dict[str, Path] = {}
    for path in sorted(place.glob("*_search/results-*.json"), key=lambda path: path.stat().st_mtime_ns):
        try:
            found[typed(str, read_json(path, dict[str, Any])["part"])] = path
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} does not hold results of decode.py; delete it and decode again") from error
    return found


def compare_results(first: Results, second: Results) -> dict[str, Difference]:
    """Paired tests of all words and of each group, in per cent."""
    return compare_measures(first.part, first.measures(), second.measures())


def compare_measures(part: str, first: Mapping[str, Measure], second: Mapping[str, Measure]) -> dict[str, Difference]:
    """Paired tests of each measure, in per cent: how the second system's errors differ from the first's."""
    if first.keys() != second.keys() or any(first[name].ids != second[name].ids for name in first):
        raise UserError(f"{part}: the two systems were not decoded on the same utterances; decode both again")
    return {
        name: ratio_difference(100 * measure.errors, 100 * second[name].errors, measure.words)
        for name, measure in first.items()
    }


# Files for people


def recogs_text(utterances: Sequence[Recognised]) -> str:
    """Reference and hypothesis of each utterance, as lists of words."""
    lines = [f"{u.id}:\tref={u.reference}\n{u.id}:\thyp={u.hypothesis}\n" for u in utterances]
    return "".join(lines)


def errs_text(utterances: Sequence[Recognised]) -> str:
    """Totals, alignments, and counts of each error and each word."""
    alignments = {u.id: align(u.reference, u.hypothesis) for u in utterances}
    pairs = [pair for alignment in alignments.values() for pair in alignment]
    errors = count_errors(pairs)
    correct = errors.words - errors.substitutions - errors.deletions
    blocks = [
        f"%WER = {errors.rate:.2f}\n"
        f"Errors: {errors.insertions} insertions, {errors.deletions} deletions, {errors.substitutions} substitutions, "
        f"over {errors.words} reference words ({correct} correct)\n",
        "PER-UTT DETAILS: corr or (ref->hyp)\n"
        + "".join(f"{name}:\t{alignment_text(alignment)}\n" for name, alignment in alignments.items()),
        counted("SUBSTITUTIONS: count ref -> hyp", [f"{a} -> {b}" for a, b in pairs if a != b and EMPTY not in (a, b)]),
        counted("DELETIONS: count ref", [a for a, b in pairs if b == EMPTY]),
        counted("INSERTIONS: count hyp", [b for a, b in pairs if a == EMPTY]),
        word_counts(pairs),
    ]
    return "\n".join(blocks)


def alignment_text(alignment: Sequence[AlignedPair]) -> str:
    """Words that are right as they are, others as (ref->hyp) with `*` for nothing; neighbouring errors joined."""
    parts: list[str] = []
    wrong: list[AlignedPair] = []
    for reference, hypothesis in [*alignment, (EMPTY, EMPTY)]:
        if reference != hypothesis:
            wrong.append((reference, hypothesis))
            continue
        if wrong:
            sides = [" ".join(word for word in side if word != EMPTY) or "*" for side in zip(*wrong, strict=True)]
            parts.append(f"({sides[0]}->{sides[1]})")
            wrong = []
        if reference != EMPTY:
            parts.append(reference)
    return " ".join(parts)


def counted(title: str, items: Sequence[str]) -> str:
    """A block of counts, largest first."""
    counts = sorted(Counter(items).items(), key=lambda item: (-item[1], item[0]))
    return f"{title}\n" + "".join(f"{count}   {item}\n" for item, count in counts)


def word_counts(pairs: Sequence[AlignedPair]) -> str:
    """For each word how often it was right, wrong, in a reference and in a hypothesis; most errors first."""
    correct: Counter[str] = Counter()
    references: Counter[str] = Counter()
    hypotheses: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for reference, hypothesis in pairs:
        references[reference] += 1
        hypotheses[hypothesis] += 1
        if reference == hypothesis:
            correct[reference] += 1
        else:
            wrong.update(word for word in (reference, hypothesis) if word != EMPTY)
    words = sorted((references.keys() | hypotheses.keys()) - {EMPTY}, key=lambda word: (-wrong[word], word))
    lines = [f"{word}\t{correct[word]} {wrong[word]} {references[word]} {hypotheses[word]}\n" for word in words]
    return "PER-WORD STATS: word corr tot_errs count_in_ref count_in_hyp\n" + "".join(lines)
