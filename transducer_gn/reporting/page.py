"""A report as one HTML page that needs no other file."""

from collections.abc import Sequence
from html import escape

from transducer_gn.reporting.figure import ReportFigure
from transducer_gn.reporting.table import Table

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 64rem; padding: 1.5rem 1rem 4rem; color: #1b1b1b; background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
.scroll { overflow-x: auto; border: 1px solid #ddd; border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .75rem; text-align: right; white-space: nowrap; }
td.text, th.text { text-align: left; }
td.text { white-space: normal; }
thead th { background: #f6f6f4; border-bottom: 1px solid #ddd; }
tbody tr + tr td { border-top: 1px solid #eee; }
tr.rule + tr td { border-top: 2px solid #999; }
tr.rule { display: none; }
.notes { color: #555; font-size: .85rem; margin: .5rem 0 0; padding-left: 1.1rem; }
figure { margin: 1.5rem 0 2rem; }
figure img { width: 100%; max-width: 48rem; height: auto; display: block; }
figcaption { color: #444; font-size: .9rem; max-width: 48rem; }
.key .scroll { border-color: #0072b2; }
@media (max-width: 40rem) {
  body { padding: 1rem .75rem 3rem; }
  table { font-size: .8rem; }
  th, td { padding: .3rem .4rem; }
  td.text { min-width: 6.5rem; }
  th { white-space: normal; }
}
"""


def html_page(
    title: str, key: Table | None, tables: Sequence[Table], figures: Sequence[tuple[ReportFigure, str]]
) -> str:
    """The page; figures come with their SVG in base64."""
    parts = [f"<h1>{escape(title)}</h1>"]
    if key is not None:
        parts.append(f'<section class="key">{table_html(key)}</section>')
    parts += [figure_html(figure, image) for figure, image in figures if figure.explains_key]
    parts += [f"<section>{table_html(table)}</section>" for table in tables]
    parts += [figure_html(figure, image) for figure, image in figures if not figure.explains_key]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def table_html(table: Table) -> str:
    """A table with its title and notes."""
    is_text = table.text_columns()

    def row_html(cells: Sequence[str], tag: str) -> str:
        if not cells:
            return '<tr class="rule"></tr>'
        marks = [' class="text"' if text else "" for text in is_text]
        return (
            "<tr>"
            + "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True))
            + "</tr>"
        )

    body = "\n".join(row_html(row, "td") for row in table.rows)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="scroll"><table>\n<thead>{row_html(table.columns, "th")}</thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>" + (f'\n<ul class="notes">{notes}</ul>' if notes else "")
    )


def figure_html(figure: ReportFigure, image: str) -> str:
    """A figure with its caption."""
    caption = escape(figure.caption)
    return (
        f'<figure><img alt="{escape(figure.name)}: {caption}" src="data:image/svg+xml;base64,{image}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )
