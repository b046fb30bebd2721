"""Invariant: a part's description counts its utterances, and examples show every group and one whole unit."""

import numpy as np
import pytest
from lhotse import MonoCut, SupervisionSegment

from transducer_gn.data.description import choose_examples, describe_parts
from transducer_gn.data.prepared import PreparedData


def cut(name, **custom):
    return MonoCut(name, 0.0, 1.0, 0, [SupervisionSegment(name, name, 0.0, 1.0, text="A", custom=custom or None)])


def test_numbers_are_those_of_the_cuts(prepared):
    data = PreparedData(prepared)
    tokenizer = data.tokenizer(60)
    train, dev, test = describe_parts(data, tokenizer)
    assert [(part.name, part.role) for part in (train, dev, test)] == [
        ("train-mini", "train"),
        ("dev-mini", "dev"),
        ("test-mini", "test"),
    ]
    cuts = list(data.cuts("dev-mini"))
    assert dev.utterances == sum(dev.groups.values()) == len(cuts)
    assert dev.hours == pytest.approx(sum(c.duration for c in cuts) / 3600)
    assert dev.durations == pytest.approx(np.quantile([c.duration for c in cuts], [0.05, 0.5, 0.95, 1.0]))
    assert dev.tokens[-1] == max(len(tokenizer.encode(c.supervisions[0].text)) for c in cuts)
    known = {word for c in data.cuts("train-mini") for word in c.supervisions[0].text.split()}
    unseen = [word for c in cuts for word in c.supervisions[0].text.split() if word not in known]
    assert (train.words_unseen, dev.words_unseen) == (0, len(unseen))
    assert dev.groups == {"ambiguous": 8, "control": 4, "ordinary": 4}


def test_examples_are_a_unit_of_the_first_group_one_of_each_other_and_ordinary_ones():
    cuts = [cut("o1"), cut("y1", kind="y"), cut("x1", kind="x", twin="x2"), cut("o2"), cut("x2", kind="x", twin="x1")]
    cuts += [cut("x3", kind="x"), cut("y2", kind="y"), cut("o3")]
    assert [c.id for c in choose_examples(cuts, 5)] == ["x1", "x2", "y1", "o1", "o2"]
    assert [c.id for c in choose_examples(cuts, 1)] == ["x1"]
    assert [c.id for c in choose_examples([cut("o1"), cut("o2")], 5)] == ["o1", "o2"]
