"""Invariant: a page holds every table and figure once, what explains the key table beside it, and no text as markup."""

from transducer_gn.reporting.figure import ReportFigure, new_figure
from transducer_gn.reporting.page import html_page
from transducer_gn.reporting.table import Table


def figure(name, explains_key=False):
    return ReportFigure(name, new_figure()[0], f"about {name}", explains_key)


def test_order_and_content():
    key, other = (
        Table("Key", ["", "x"], [["a", "1"]]),
        Table("Other", ["", "y"], [["b", "2"], [], ["c", "3"]], ["Why."]),
    )
    figures = [(figure("curve"), "AAA"), (figure("close", explains_key=True), "BBB")]
    page = html_page("Title", key, [other], figures)
    places = [
        page.index(text) for text in ("<h1>Title", "<h2>Key", "base64,BBB", "<h2>Other", "<li>Why.", "base64,AAA")
    ]
    assert places == sorted(places)
    assert all(page.count(text) == 1 for text in ("base64,AAA", "base64,BBB", "<h2>Key", '<tr class="rule">'))


def test_text_is_not_markup():
    table = Table("<b>", ["<i>", "x"], [["<u>", "1"]], ["<s>"])
    page = html_page("<a>", table, [], [(figure("<em>"), "AAA")])
    for tag in ("<b>", "<i>", "<u>", "<s>", "<a>", "<em>"):
        assert tag not in page and tag.replace("<", "&lt;").replace(">", "&gt;") in page
