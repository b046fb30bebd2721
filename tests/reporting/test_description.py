"""Invariant: a description for people holds the numbers of the parts, and marks what the manifest names."""

from matplotlib.figure import Figure

from transducer_gn.data.description import PartDescription
from transducer_gn.data.prepared import PreparedData
from transducer_gn.reporting.description import draw_cut, parts_table, title_of


def test_the_table_has_a_row_for_each_part():
    numbers = dict(utterances=5, hours=0.25, speakers=2, durations=(1, 2, 3, 4.0), tokens=(5, 6, 7, 8.0))
    part = PartDescription(
        name="dev-x", role="dev", words=8, words_unseen=2, tokens_unknown=1, groups={"a": 2, "ordinary": 3}, **numbers
    )
    (row,) = parts_table("T", [part]).rows
    assert row[:5] == ["dev-x", "dev", "5", "0.25", "2"]
    assert row[5:] == ["1.0 / 2.0 / 3.0 / 4.0", "5 / 6 / 7 / 8", "2 (25.0 %)", "1", "2 a, 3 ordinary"]


def test_an_utterance_is_drawn_with_its_words_and_stretches_of_time(prepared):
    cut = next(c for c in PreparedData(prepared).cuts("test-mini") if "settling" in c.supervisions[0].custom)
    custom = cut.supervisions[0].custom
    axis = Figure().subplots()
    draw_cut(axis, cut)
    texts = [text.get_text() for text in axis.texts]
    assert texts == [*cut.supervisions[0].text.split(), "blend", "settling"]
    spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axis.patches]
    assert [tuple(round(time, 4) for time in span) for span in spans] == [
        tuple(custom["blend"]),
        tuple(custom["settling"]),
    ]
    assert title_of(cut) == f"{cut.id}, ambiguous; pair {', '.join(custom['pair'])}"
    assert axis.get_title(loc="left") == title_of(cut)
