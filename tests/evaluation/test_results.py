"""Invariant: what is written of a decoded set can be read back the same, whatever the version, and its files for people
count what kaldialign aligns.
"""

import json
import os

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.evaluation.latency import UtteranceTimes
from transducer_gn.evaluation.results import (
    Results,
    alignment_text,
    compare_measures,
    errs_text,
    find_results,
    read_entry,
    read_results,
    results_path,
    write_results,
)
from transducer_gn.recognition.error_rates import Recognised, measures

UTTERANCES = [
    Recognised("a", ["A", "B"], ["A", "C"], "special", "a", {"kind": "special", "times": [0.1, 0.2]}),
    Recognised("b", ["A"], ["A"]),
]


def test_results_are_read_back_the_same(tmp_path):
    results = Results("test", "epoch-1", {"alpha": 0.5}, UTTERANCES)
    write_results(tmp_path, results)
    path = results_path(tmp_path, "test", "epoch-1")
    assert read_results(path) == results
    rates = {name: measure["rate"] for name, measure in json.loads(path.read_text())["measures"].items()}
    assert rates == pytest.approx({"all": 100 / 3, "ordinary": 0, "special": 50})


def test_fields_of_the_first_version_become_group_unit_and_custom():
    entry = {"id": "b", "reference": ["A"], "hypothesis": [], "kind": "x", "twin": "a", "other": [1]}
    found = read_entry(Recognised, entry)
    assert found == Recognised("b", ["A"], [], "x", "a", {"kind": "x", "twin": "a", "other": [1]})
    times = read_entry(
        UtteranceTimes, {"id": "b", "tokens": [], "emitted": [], "shown": [], "settled": [], "kind": "x"}
    )
    assert times == UtteranceTimes("b", "x", [], [], [], [], {"kind": "x"})
    with pytest.raises(ValueError, match="has no reference"):
        read_entry(Recognised, {"id": "b", "kind": "x"})


def test_the_newest_file_of_each_set_is_found_and_others_are_named(tmp_path):
    folder = tmp_path / "beam_search"
    folder.mkdir()
    for age, (part, system) in enumerate([("test", "new"), ("test", "old"), ("dev", "old")]):
        write_results(folder, Results(part, system, {}, UTTERANCES))
        os.utime(results_path(folder, part, system), (1000 - age, 1000 - age))
    found = find_results(tmp_path)
    assert {part: path.name for part, path in found.items()} == {
        "test": "results-test-new.json",
        "dev": "results-dev-old.json",
    }
    assert find_results(found["dev"]) == {"dev": found["dev"]}
    found["dev"].write_text("{}")
    for read in (lambda: find_results(tmp_path), lambda: read_results(found["dev"])):
        with pytest.raises(UserError, match="results-dev-old.json does not hold results of decode.py"):
            read()
    with pytest.raises(UserError, match="cannot read .*nothing.json"):
        read_results(tmp_path / "nothing.json")


def test_measures_of_other_units_or_names_are_not_compared():
    first = measures(UTTERANCES)
    assert {name: d.change.value for name, d in compare_measures("t", first, first).items()} == dict.fromkeys(first, 0)
    for other in (measures(UTTERANCES[:1]), measures([UTTERANCES[0], Recognised("c", ["A"], ["A"])])):
        with pytest.raises(UserError, match="t: the two systems were not decoded on the same utterances"):
            compare_measures("t", first, other)


def test_errs_lists_alignments_and_counts():
    text = errs_text(
        [
            Recognised("a", "THE CAT SAT".split(), "THE BAT SAT DOWN".split()),
            Recognised("b", "THE CAT".split(), ["CAT"]),
            Recognised("c", [], ["CAT"]),
        ]
    )
    assert "Errors: 2 insertions, 1 deletions, 1 substitutions, over 5 reference words (3 correct)" in text
    assert "a:\tTHE (CAT->BAT) SAT (*->DOWN)\nb:\t(THE->*) CAT\nc:\t(*->CAT)\n" in text
    assert "SUBSTITUTIONS: count ref -> hyp\n1   CAT -> BAT\n" in text
    assert "DELETIONS: count ref\n1   THE\n" in text
    assert "INSERTIONS: count hyp\n1   CAT\n1   DOWN\n" in text
    assert "\nCAT\t1 2 2 2\n" in text


def test_neighbouring_errors_are_joined():
    assert alignment_text([("A", "B"), ("C", " "), ("D", "D"), (" ", "E")]) == "(A C->B) D (*->E)"
