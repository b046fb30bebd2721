"""Invariant: a stage counts as done only after it finished, and only for the inputs it was given; work in other
processes comes back in order, and its failures come back, too."""

import os
import signal
import time

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import run_each
from transducer_gn.common.seeds import stable_seed
from transducer_gn.common.stages import Stage, listing_fingerprint
from transducer_gn.data.manifest_files import portable_path, read_json_lines, write_json_lines


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


def test_a_listing_changes_with_any_file(tmp_path):
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        file.write_text("text")
    before = listing_fingerprint(tmp_path, files)
    assert listing_fingerprint(tmp_path, files[::-1]) == before
    os.utime(files[0], ns=(1, 1))
    assert listing_fingerprint(tmp_path, files) != before
    assert listing_fingerprint(tmp_path, files[1:]) != before


def test_manifests_are_the_same_bytes_at_any_time_and_under_any_name(tmp_path):
    items = [{"id": "one", "duration": 0.1 + 0.2, "text": "CAFÉ"}]
    write_json_lines(tmp_path / "first.jsonl.gz", items)
    time.sleep(1.1)
    write_json_lines(tmp_path / "second.jsonl.gz", items)
    assert (tmp_path / "first.jsonl.gz").read_bytes() == (tmp_path / "second.jsonl.gz").read_bytes()
    assert list(read_json_lines(tmp_path / "first.jsonl.gz")) == items


def test_paths_below_a_folder_are_relative_to_it(tmp_path):
    assert portable_path(tmp_path / "a" / "b", tmp_path) == "a/b"
    assert portable_path(tmp_path / "a", tmp_path / "elsewhere") == str(tmp_path / "a")


def test_seeds_depend_on_every_part_of_an_identity():
    seeds = {stable_seed(*identity) for identity in [("a", 1), ("a", 2), ("b", 1), ("a", "1"), ("a1",), (1, "a")]}
    assert len(seeds) == 6
    assert stable_seed("chapter", 0) == 6990546581963415230


def square(number: int) -> tuple[int, int]:
    time.sleep(0.01 * (5 - number))
    return number**2, os.getpid()


def test_results_come_in_order_each_from_a_process_of_its_own():
    results = run_each(square, [(number,) for number in range(6)], jobs=3, label="Squares")
    assert [result for result, _ in results] == [0, 1, 4, 9, 16, 25]
    assert len({process for _, process in results} | {os.getpid()}) == 7


def refuse() -> None:
    raise UserError("file x is bad")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_long() -> None:
    time.sleep(60)


def test_a_user_error_and_a_killed_process_are_reported_and_the_others_stopped():
    with pytest.raises(UserError, match="file x is bad"):
        run_each(lambda work: work(), [(refuse,), (sleep_long,)], jobs=2, label="Work")
    with pytest.raises(UserError, match="exit code -9 .* smaller --nj"):
        run_each(lambda work: work(), [(sleep_long,), (die,)], jobs=2, label="Work")
