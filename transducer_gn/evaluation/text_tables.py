"""Tables as plain text: a title, columns that line up, notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """Cells as text.

    Attributes:
      rows: each with as many cells as there are `columns`; an empty row is a rule.
      notes: sentences below the table.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=tuple)

    def text(self) -> str:
        """The table with columns padded; the first to the right, the others to the left."""
        cells = [self.columns, *(row for row in self.rows if row)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        rule = "  ".join("-" * width for width in widths)
        lines = [line(self.columns, widths), rule]
        lines += [line(row, widths) if row else rule for row in self.rows]
        return "\n".join([self.title, "", *lines, *(f"  {note}" for note in self.notes)]) + "\n"


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One row."""
    first, *others = [
        cell.rjust(width) if number else cell.ljust(width) for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join([first, *others]).rstrip()


def percent(value: float) -> str:
    """A rate in per cent; a dash for none."""
    return "–" if value != value else f"{value:.2f}"


def signed(value: float, decimals: int = 2) -> str:
    """A change, with its sign."""
    return "–" if value != value else f"{value:+.{decimals}f}"


def p_text(value: float) -> str:
    """A p-value as readers expect it."""
    if value != value:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
