"""What a report shows of a corpus beyond what any corpus has: the interface between reports and special corpora."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.bootstrap import Difference
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import Latency, TokenChoice
from transducer_gn.evaluation.results import Results
from transducer_gn.recognition.error_rates import Measure, Recognised
from transducer_gn.reporting.figure import ReportFigure
from transducer_gn.reporting.table import Table


@dataclass(frozen=True)
class Comparison:
    """Two trained systems that a figure may show side by side.

    Attributes:
        baseline: folder of the local run
        challenger: folder of the global run
        data: what both were evaluated on
        part: the test set
    """

    baseline: Path
    challenger: Path
    data: PreparedData
    part: str


@dataclass(frozen=True)
class Evaluated:
    """A trained system and what was measured of it on a test set.

    Attributes:
        name: of its run
        folder: of its run
        results: of decoding
        latency: when words come out; None if that was not measured
    """

    name: str
    folder: Path
    results: Results
    latency: Latency | None


class Extras:
    """Adds nothing. A corpus that has more to show overrides what it has.

    Attributes:
        key_tokens: names of choices of `token_choices` whose emission times stand in the key table
        measures_note: a sentence about `measures` below the table of all of them
    """

    key_tokens: Sequence[str] = ()
    measures_note: str = ""

    def measures(self, utterances: Sequence[Recognised]) -> dict[str, Measure]:
        """Error rates beside those of all words and of each group; names that end in "words" are shown as they are."""
        return {}

    def token_choices(self, utterances: Sequence[UtteranceTimes]) -> dict[str, TokenChoice]:
        """Tokens whose emission times are given beside those of all tokens and of each group."""
        return {}

    def key_notes(self, differences: Mapping[str, Difference]) -> list[str]:
        """Sentences below the key table, given its differences by measure."""
        return []

    def figures(self, comparison: Comparison) -> list[ReportFigure]:
        """Figures of what the two systems of the key table do."""
        return []

    def tables(self, systems: Sequence[Evaluated]) -> list[Table]:
        """Tables of all systems that were decoded on the set of the key table."""
        return []

    def training_figures(self, systems: Sequence[Evaluated]) -> list[ReportFigure]:
        """Figures of the same systems over training, where every epoch was measured."""
        return []


NO_EXTRAS = Extras()
