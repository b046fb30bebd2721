"""Invariant: the same content gives the same bytes, and a folder can be moved with its manifests."""

import time

from transducer_gn.data.manifest_files import portable_path, read_json_lines, write_json_lines


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
