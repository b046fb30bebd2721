"""Invariant: error counts, rates and alignments are those of kaldialign and jiwer, whatever the texts."""

import jiwer
import kaldialign
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transducer_gn.recognition.error_rates import (
    EMPTY,
    Errors,
    Recognised,
    align,
    all_errors,
    count_errors,
    measures,
    total_errors,
)

words = st.lists(st.sampled_from(["A", "B", "C", "*", "AB"]), max_size=8)


def utterance(reference, hypothesis, group="ordinary", name="x"):
    return Recognised(name, reference.split(), hypothesis.split(), group)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(words, words)
def test_counts_equal_kaldialign(reference, hypothesis):
    errors = count_errors(align(reference, hypothesis))
    expected = kaldialign.edit_distance(reference, hypothesis)
    assert (errors.insertions, errors.deletions, errors.substitutions) == (
        expected["ins"], expected["del"], expected["sub"],
    )  # fmt: skip
    assert errors.words == len(reference)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(words, words)
def test_an_alignment_holds_both_texts_and_its_errors_are_as_few_as_jiwer_finds(reference, hypothesis):
    alignment = align(reference, hypothesis)
    assert [a for a, _ in alignment if a != EMPTY] == reference
    assert [b for _, b in alignment if b != EMPTY] == hypothesis
    if reference:
        output = jiwer.process_words(" ".join(reference), " ".join(hypothesis))
        assert count_errors(alignment).total == output.substitutions + output.deletions + output.insertions


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(words, words), min_size=1, max_size=6))
def test_rate_of_a_set_equals_jiwer(texts):
    found = total_errors([Recognised(str(n), *pair) for n, pair in enumerate(texts)])
    if found.words == 0:
        assert np.isnan(found.rate)
        return
    references, hypotheses = zip(*texts, strict=True)
    # jiwer refuses an empty reference; its errors are insertions, one for each word of the hypothesis.
    kept = [(" ".join(a), " ".join(b)) for a, b in texts if a]
    inserted = sum(len(b) for a, b in zip(references, hypotheses, strict=True) if not a)
    rate = jiwer.wer([a for a, _ in kept], [b for _, b in kept])
    assert found.rate == pytest.approx(100 * (rate + inserted / found.words))


def test_errors_add_up():
    one = count_errors(align("A B C".split(), "A X".split()))
    other = count_errors(align([], ["D"]))
    assert one + other == Errors(substitutions=1, deletions=1, insertions=1, words=3)


def test_measures_tell_groups_apart_the_default_one_first():
    found = measures(
        [
            utterance("A B", "A C", "noisy", "1"),
            utterance("MAIL ORDER", "NAIL ORDER", name="2"),
            utterance("NAIL POLISH", "NAIL X", name="3"),
            utterance("NAIL A", "NAIL A", "clean", "4"),
        ]
    )
    assert list(found) == ["all", "ordinary", "clean", "noisy"]
    assert {name: measure.rate for name, measure in found.items()} == {
        "all": 37.5, "ordinary": 50, "clean": 0, "noisy": 50,
    }  # fmt: skip
    assert found["ordinary"].ids == ["2", "3"]


def test_one_group_alone_is_not_repeated():
    assert list(measures([utterance("A", "A")])) == ["all"]


def test_empty_texts_have_no_rate_and_no_error():
    assert all_errors(utterance("", "")) == Errors()
    assert np.isnan(measures([utterance("", "")])["all"].rate)


def test_utterances_of_a_unit_count_together_and_are_drawn_together():
    first = Recognised("a-1", ["MAIL", "X"], ["NAIL", "X"], "special", unit="a-0")
    second = Recognised("a-0", ["NAIL", "Y"], ["NAIL", "Z"], "special", unit="a-0")
    found = measures([first, Recognised("b", ["X"], ["X"]), second])
    assert found["all"].ids == ["a-0", "b"]
    assert found["all"].errors.tolist() == [2, 0] and found["all"].words.tolist() == [4, 1]
    assert found["all"].utterances == 3
    assert found["special"].errors.tolist() == [2] and found["special"].utterances == 2
