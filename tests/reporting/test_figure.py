"""Invariant: a figure is saved with its numbers, and the same figure gives the same bytes in every format."""

import json

import pytest

from transducer_gn.reporting.figure import ReportFigure, new_figure, save_image


def drawn(label="one"):
    figure, (upper, lower) = new_figure(2)
    upper.plot([1, 2], [3.0, 5.5], label=label)
    lower.set_xlabel("epoch")
    return ReportFigure("name", figure, "caption")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_figure_is_the_same_file(tmp_path, suffix):
    first, second = (save_image(drawn().figure, tmp_path / f"{n}.{suffix}", 50) for n in range(2))
    assert first == second == (tmp_path / f"0.{suffix}").read_bytes()
    assert save_image(drawn("two").figure, tmp_path / f"2.{suffix}", 51) != first or suffix != "png"


def test_numbers_stand_beside_the_images(tmp_path):
    image = drawn().save(tmp_path)
    assert b"<svg" in image and (tmp_path / "name.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "name.json").read_text())
    assert content["caption"] == "caption"
    assert content["panels"][0]["lines"] == [{"label": "one", "points": [[1, 3.0], [2, 5.5]]}]
    assert content["panels"][1]["x"] == "epoch"
