"""What a report shows of the mini corpus beyond other corpora: its blended words, its controls, the two readings.

On a corpus without blends nothing of this applies, and nothing is shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transducer_gn.config.synthetic import ALL_DISTANCES
from transducer_gn.data.labels import group_order
from transducer_gn.evaluation.bootstrap import Difference
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import TokenChoice
from transducer_gn.recognition.error_rates import Measure, Recognised, measure
from transducer_gn.reporting.extras import Comparison, Evaluated, Extras
from transducer_gn.reporting.figure import ReportFigure
from transducer_gn.reporting.table import Table, p_text, signed
from transducer_gn.synthetic.blends import blended_errors, blended_tokens, blended_words
from transducer_gn.synthetic.distance_report import distance_table, training_figure
from transducer_gn.synthetic.distances import FEW, distance_name, distance_of, distances_in, own_words
from transducer_gn.synthetic.readings_figure import compare_readings
from transducer_gn.synthetic.sentences import AMBIGUOUS, CONTROL


class MiniCorpusExtras(Extras):
    """Errors and emission times of blended words, a note on the controls, and the figure of the two readings."""

    key_tokens = (f"{AMBIGUOUS} words", *map(distance_name, ALL_DISTANCES))
    measures_note = "The last columns are about the blended words alone."

    def measures(self, utterances: Sequence[Recognised]) -> dict[str, Measure]:
        """Errors on blended words, by kind of sentence and, where there are few, by distance."""
        blended = [utterance for utterance in utterances if blended_words(utterance.custom)]
        kinds = sorted({utterance.group for utterance in blended}, key=group_order)
        found = {f"{kind} words": [u for u in blended if u.group == kind] for kind in kinds}
        for distance in few_distances((u.reference, u.custom) for u in blended):
            chosen = [u for u in blended if distance_of(u.reference, u.custom) == distance]
            found[distance_name(distance)] = chosen
        return {name: measure(chosen, blended_errors) for name, chosen in found.items()}

    def token_choices(self, utterances: Sequence[UtteranceTimes]) -> dict[str, TokenChoice]:
        """Tokens of blended words, by kind of sentence and, where there are few, by distance."""
        blended = [blended_tokens(utterance) for utterance in utterances]
        kinds = sorted({u.group for u, tokens in zip(utterances, blended, strict=True) if any(tokens)}, key=group_order)
        distances = [distance_of(own_words(utterance), utterance.custom) for utterance in utterances]
        chosen = {f"{kind} words": [u.group == kind for u in utterances] for kind in kinds}
        for distance in few_distances((own_words(u), u.custom) for u in utterances):
            chosen[distance_name(distance)] = [own == distance for own in distances]
        return {
            name: [tokens if is_in else [False] * len(tokens) for tokens, is_in in zip(blended, flags, strict=True)]
            for name, flags in chosen.items()
        }

    def key_notes(self, differences: Mapping[str, Difference]) -> list[str]:
        """What the control sentences say."""
        name = f"{CONTROL} words"
        return [control_note(differences[name])] if name in differences else []

    def figures(self, comparison: Comparison) -> list[ReportFigure]:
        """The two readings of an utterance that tells the systems apart."""
        readings = compare_readings(comparison)
        return [] if readings is None else [readings]

    def tables(self, systems: Sequence[Evaluated]) -> list[Table]:
        """Ambiguous words by their distance from the word that settles them."""
        table = distance_table(systems)
        return [] if table is None else [table]

    def training_figures(self, systems: Sequence[Evaluated]) -> list[ReportFigure]:
        """The same over training, where every epoch was measured."""
        figure = training_figure(systems)
        return [] if figure is None else [figure]


def few_distances(utterances: Iterable[tuple[Sequence[str], Mapping[str, Any]]]) -> list[int]:
    """The distances of utterances, given by words and custom fields, where there are several but few; else none."""
    found = distances_in(utterances)
    return found if 1 < len(found) <= FEW else []


def control_note(difference: Difference) -> str:
    """Whether the change of errors on words that nothing tells is none, as it must be."""
    found = f"{signed(difference.change.value)} points, p {p_text(difference.p_value)}"
    if difference.p_value >= 0.05:
        return (
            f"Control: nothing in these sentences tells the blended word, and as it must be there is no gain ({found})."
        )
    return f"Control: nothing in these sentences tells the blended word, yet its error changed ({found}): look into it."
