"""Tables as plain text: a title, columns that line up, notes."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """Cells as text.

    Attributes:
        rows: each with as many cells as there are `columns`; an empty row is a rule
        notes: sentences below the table
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = field(default_factory=tuple)

    def text_columns(self) -> list[bool]:
        """Which columns hold words, and stand on the left; numbers line up on the right."""
        return [
            number == 0 or any(row and not looks_like_number(row[number]) for row in self.rows)
            for number in range(len(self.columns))
        ]

    def text(self) -> str:
        """The table with columns padded."""
        cells = [self.columns, *(row for row in self.rows if row)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        rule = "  ".join("-" * width for width in widths)
        is_text = self.text_columns()

        def line(row: Sequence[str]) -> str:
            padded = [x.ljust(w) if left else x.rjust(w) for x, w, left in zip(row, widths, is_text, strict=True)]
            return "  ".join(padded).rstrip()

        lines = [line(self.columns), rule, *(line(row) if row else rule for row in self.rows)]
        return "\n".join([self.title, "", *lines, *(f"  {note}" for note in self.notes)]) + "\n"


def looks_like_number(cell: str) -> bool:
    """Numbers, intervals and the like."""
    return cell[:1] in "+-–<(0123456789"


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
