"""Invariant: what JSON does not have is written as what it has."""

import json
import math

from transducer_gn.common.json_files import write_json


def test_numbers_that_json_lacks_are_null(tmp_path):
    write_json(tmp_path / "x.json", {"a": [math.nan, 1.5, {"b": math.nan}], "c": (2, math.nan)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [None, 1.5, {"b": None}], "c": [2, None]}
