"""Tables of error rates: of one system, and of two compared."""

from collections.abc import Mapping, Sequence

from transducer_gn.evaluation.bootstrap import Difference
from transducer_gn.evaluation.results import Results, measure_summary
from transducer_gn.recognition.error_rates import total_errors
from transducer_gn.reporting.table import Table, p_text, percent, signed

MEASURE_NAMES = {"all": "all words"}


def measure_name(name: str) -> str:
    """What a measure is called in tables: "ambiguous" is about sentences, "ambiguous words" about single words."""
    return MEASURE_NAMES.get(name, name if name.endswith(" words") else f"{name} sentences")


def rates_table(results: Sequence[Results]) -> Table:
    """Error rates of one system on its test sets, with their intervals."""
    rows = []
    for result in results:
        errors = total_errors(result.utterances)
        for name, measure in result.measures().items():
            summary = measure_summary(measure)
            counts = (errors.substitutions, errors.deletions, errors.insertions) if name == "all" else ("", "", "")
            rows.append(
                [
                    f"{result.part}, {measure_name(name)}",
                    percent(summary["rate"]),
                    f"{percent(summary['low'])} to {percent(summary['high'])}",
                    *map(str, counts),
                    str(summary["words"]),
                ]
            )
    columns = ["", "WER %", "95 % interval", "sub", "del", "ins", "words"]
    return Table(f"Word error rates of {results[0].system}", columns, rows)


def comparison_row(name: str, difference: Difference, decimals: int = 2) -> list[str]:
    """Both values, the change with its interval, the relative change and the p-value."""
    return [
        name,
        f"{difference.first:.{decimals}f}",
        f"{difference.second:.{decimals}f}",
        signed(difference.change.value, decimals),
        f"{signed(difference.change.low, decimals)} to {signed(difference.change.high, decimals)}",
        f"{signed(difference.relative, 1)} %",
        p_text(difference.p_value),
    ]


def comparison_table(title: str, differences: Mapping[str, Mapping[str, Difference]], names: tuple[str, str]) -> Table:
    """Paired tests by test set and measure."""
    rows = [
        comparison_row(f"{part}, {measure_name(name)}", difference)
        for part, measures in differences.items()
        for name, difference in measures.items()
    ]
    columns = ["WER %", *names, "change", "95 % interval", "relative", "p"]
    return Table(title, columns, rows, ["Paired bootstrap over utterances; a change below 0 is an improvement."])
