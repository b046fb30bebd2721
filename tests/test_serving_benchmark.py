"""Invariant: what the live server's benchmark measures in full holds in small: texts equal under load, nobody disturbed
by clients that misbehave, what must be refused is, and memory does not follow the audio.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from mind_changer import REVISED, said, write_mind_changer

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The benchmark's file as a module."""
    sys.path.insert(0, str(FOLDER))
    try:
        specification = importlib.util.spec_from_file_location("serving_benchmark", FOLDER / "serving.py")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    finally:
        sys.path.remove(str(FOLDER))
    return module


def test_the_short_version(benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mind_changer(tmp_path / "epoch-1.pt")
    monkeypatch.setattr(benchmark, "sounds", lambda count: [said(), said(2)])
    monkeypatch.setattr(benchmark, "ROOM", 40)
    size = ["--counts", "1,5,12", "--loads", "4", "--seconds", "2", "--others", "2", "--crowd", "300", "--minutes", "1"]
    file = tmp_path / "result.json"
    result = benchmark.main(["--checkpoint", str(tmp_path / "epoch-1.pt"), *size, "--json", str(file)])
    ratios = result["ratios"]
    assert [ratios[f"unequal_texts_at_{count}"] for count in (1, 5, 12)] == [0, 0, 0]
    assert result["words"] == 3 * len(REVISED.split())
    assert result["loads"][0]["streams"] == 4
    assert ratios["disturbed"] == 0
    assert result["faults"]["others"]["bursting"] == ["ahead"]
    assert ratios["refused"] == 1, result["refusals"]
    assert ratios["memory_growth"] < 1.1
    assert file.is_file()
