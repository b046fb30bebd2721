"""What a report shows of the mini corpus beyond other corpora: its blended words, its controls, the two readings.

On a corpus without blends nothing of this applies, and nothing is shown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transducer_gn.data.labels import group_order
from transducer_gn.evaluation.bootstrap import Difference
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.latency_results import TokenChoice
from transducer_gn.recognition.error_rates import Errors, Measure, Recognised, align, count_errors, measure
from transducer_gn.recognition.transcript import WORD_START
from transducer_gn.reporting.extras import Comparison, Extras
from transducer_gn.reporting.figure import ReportFigure
from transducer_gn.reporting.table import p_text, signed
from transducer_gn.synthetic.readings_figure import compare_readings
from transducer_gn.synthetic.sentences import AMBIGUOUS, CONTROL


class MiniCorpusExtras(Extras):
    """Errors and emission times of blended words, a note on the controls, and the figure of the two readings."""

    key_tokens = (f"{AMBIGUOUS} words",)
    measures_note = "The last columns are about the blended words alone."

    def measures(self, utterances: Sequence[Recognised]) -> dict[str, Measure]:
        """Errors on blended words, by kind of sentence."""
        blended = [utterance for utterance in utterances if blended_words(utterance.custom)]
        kinds = sorted({utterance.group for utterance in blended}, key=group_order)
        return {f"{kind} words": measure([u for u in blended if u.group == kind], blended_errors) for kind in kinds}

    def token_choices(self, utterances: Sequence[UtteranceTimes]) -> dict[str, TokenChoice]:
        """Tokens of blended words, by kind of sentence."""
        blended = [blended_tokens(utterance) for utterance in utterances]
        kinds = sorted({u.group for u, tokens in zip(utterances, blended, strict=True) if any(tokens)}, key=group_order)
        return {
            f"{kind} words": [
                tokens if u.group == kind else [False] * len(tokens)
                for u, tokens in zip(utterances, blended, strict=True)
            ]
            for kind in kinds
        }

    def key_notes(self, differences: Mapping[str, Difference]) -> list[str]:
        """What the control sentences say."""
        name = f"{CONTROL} words"
        return [control_note(differences[name])] if name in differences else []

    def figures(self, comparison: Comparison) -> list[ReportFigure]:
        """The two readings of an utterance that tells the systems apart."""
        readings = compare_readings(comparison)
        return [] if readings is None else [readings]


def blended_words(custom: Mapping[str, Any]) -> tuple[str, ...]:
    """The two words that an utterance's blended sound may be; none for most utterances."""
    return tuple(custom.get("pair", ()))


def blended_errors(utterance: Recognised) -> Errors:
    """The errors on the words whose sound is a blend: those of the reference that are of the utterance's pair."""
    words = blended_words(utterance.custom)
    return count_errors([(a, b) for a, b in align(utterance.reference, utterance.hypothesis) if a in words])


def blended_tokens(utterance: UtteranceTimes) -> list[bool]:
    """For each token whether it belongs to a word whose sound is a blend."""
    # Files of the first version say so themselves.
    if "blended" in utterance.custom:
        return list(utterance.custom["blended"])
    pair = blended_words(utterance.custom)
    words: list[list[str]] = []
    for piece in utterance.tokens:
        if not words or piece.startswith(WORD_START):
            words.append([])
        words[-1].append(piece)
    return [("".join(word).removeprefix(WORD_START) in pair) for word in words for _ in word]


def control_note(difference: Difference) -> str:
    """Whether the change of errors on words that nothing tells is none, as it must be."""
    found = f"{signed(difference.change.value)} points, p {p_text(difference.p_value)}"
    if difference.p_value >= 0.05:
        return (
            f"Control: nothing in these sentences tells the blended word, and as it must be there is no gain ({found})."
        )
    return f"Control: nothing in these sentences tells the blended word, yet its error changed ({found}): look into it."
