"""Invariant: work counts as done only after it finished, and only for the inputs it was given."""

import json
import os
from dataclasses import dataclass

from transducer_gn.common.stages import (
    Stage,
    inputs_text,
    listing_fingerprint,
    made_from,
    read_if_made_from,
    same_inputs,
)


def test_a_stage_is_done_once_it_finished_with_the_same_inputs(tmp_path):
    record = tmp_path / "new" / "record.json"
    stage = Stage(record, {"seed": 1})
    assert not stage.is_done()
    stage.begin()
    assert not stage.is_done()
    stage.finish()
    assert stage.is_done() and Stage(record, {"seed": 1}).is_done()
    assert not Stage(record, {"seed": 2}).is_done()
    output = tmp_path / "output"
    assert not Stage(record, {"seed": 1}, [output]).is_done()
    output.touch()
    assert Stage(record, {"seed": 1}, [output]).is_done()
    Stage(record, {"seed": 2}).begin()
    assert not stage.is_done()


def test_inputs_are_those_at_the_beginning(tmp_path):
    inputs = {"seed": 1, "hours": None}
    stage = Stage(tmp_path / "record.json", inputs)
    del inputs["hours"]
    stage.begin()
    stage.finish()
    assert json.loads((tmp_path / "record.json").read_text()) == {"seed": 1, "hours": None}


def test_a_record_that_is_broken_or_of_other_inputs_does_not_count(tmp_path):
    record = tmp_path / "record.json"
    inputs = {"sizes": (1, 2), "rate": 0.1}
    assert not made_from(record, inputs)
    record.write_text(inputs_text(inputs)[:-3])
    assert not made_from(record, inputs)
    record.write_text(inputs_text(inputs))
    assert made_from(record, inputs) and made_from(record, {"rate": 0.1, "sizes": [1, 2]})
    assert not made_from(record, inputs | {"more": None}) and not made_from(record, {"rate": 0.1})


@dataclass(frozen=True)
class Result:
    identity: dict
    value: int


def test_results_are_read_only_if_they_are_what_would_come_out(tmp_path):
    path = tmp_path / "results.json"

    def read(path):
        return Result(**json.loads(path.read_text()))

    assert read_if_made_from(path, {"beam": 4}, read) is None
    path.write_text(json.dumps({"identity": {"beam": 4}, "value": 7}))
    assert read_if_made_from(path, {"beam": 4}, read) == Result({"beam": 4}, 7)
    assert read_if_made_from(path, {"beam": 5}, read) is None
    assert same_inputs({"sets": [1]}, {"sets": (1,)})


def test_a_listing_changes_with_any_file(tmp_path):
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_text("text")
    before = listing_fingerprint(tmp_path, files)
    assert listing_fingerprint(tmp_path, files[::-1]) == before
    os.utime(files[0], ns=(1, 1))
    assert listing_fingerprint(tmp_path, files) != before
    assert listing_fingerprint(tmp_path, files[1:]) != before
