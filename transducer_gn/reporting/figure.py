"""One figure of a report: how it looks, what it was drawn from, and its files."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transducer_gn.common.files import replace_when_done
from transducer_gn.common.json_files import write_json

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

LOCAL, GLOBAL, WRONG, SHADE = "#555555", "#0072b2", "#d55e00", "#eeeeee"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLE: "dict[RcKeyType, Any]" = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "legend.frameon": False,
    "svg.hashsalt": "transducer_gn",
    "svg.fonttype": "path",
}


@dataclass(frozen=True)
class ReportFigure:
    """A figure.

    Attributes:
        name: of its files
        caption: what a reader should see in it
        explains_key: whether it stands beside the key table
    """

    name: str
    figure: Figure
    caption: str
    explains_key: bool = False

    def panels(self) -> list[dict[str, Any]]:
        """The numbers that it was drawn from."""
        return [
            {
                "x": axis.get_xlabel(),
                "y": axis.get_ylabel(),
                "lines": [
                    {"label": line.get_label(), "points": np.column_stack(line.get_data()).tolist()}
                    for line in axis.lines
                ],
            }
            for axis in self.figure.axes
        ]

    def save(self, folder: Path) -> bytes:
        """Write PNG and SVG, and its numbers as JSON; returns the SVG."""
        write_json(folder / f"{self.name}.json", {"caption": self.caption, "panels": self.panels()})
        save_image(self.figure, folder / f"{self.name}.png", dpi=160)
        return save_image(self.figure, folder / f"{self.name}.svg", dpi=160)


def save_image(figure: Figure, path: Path, dpi: int) -> bytes:
    """Write an image in the format that its name says; returns its content, the same for the same figure."""
    # Without date, program and random names the same results give the same file.
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}.get(path.suffix)
    with replace_when_done(path) as sibling, rc_context(STYLE):
        figure.savefig(sibling, format=path.suffix.removeprefix("."), metadata=metadata, dpi=dpi)
    return path.read_bytes()


def new_figure(panels: int = 1, height: float = 3.4, share: bool = True) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels one above the other that share their horizontal axis, or do not."""
    figure = Figure(figsize=(6.8, height), layout="constrained")
    axes = figure.subplots(panels, 1, sharex=share, squeeze=False)
    return figure, list(axes[:, 0])
