"""The search for accelerators equals the search in lists: sequences, order and times exactly, scores to 1e-9.

It runs here as it would there, on tensors of fixed shapes, except that they are on the CPU and in double precision.
"""

import math

import pytest
import search_oracles
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_oracles import ALPHAS, EXTREMES, random_frames, random_model
from torch.utils._python_dispatch import TorchDispatchMode

from transducer_gn.search import beam as beam_module
from transducer_gn.search import device_run
from transducer_gn.search.beam import beam_search
from transducer_gn.search.device_run import run_on_device
from transducer_gn.search.frames import JoinedFrames
from transducer_gn.search.on_device import DeviceSearch, RowLayout
from transducer_gn.search.rules import SearchRules


def search_both(monkeypatch, *arguments):
    """What the two ways find."""
    on_host = beam_search(*arguments)
    with monkeypatch.context() as patch:
        patch.setattr(beam_module, "may_look", lambda tensor: False)
        return on_host, beam_search(*arguments)


def assert_same(monkeypatch, *arguments):
    """Both find the same; of sequences whose scores differ by no more than rounding, either may be the first."""
    on_host, on_device = (by_score(found) for found in search_both(monkeypatch, *arguments))
    assert [[entry[1:] for entry in own] for own in on_device] == [[entry[1:] for entry in own] for own in on_host]
    for found, wanted in zip(on_device, on_host, strict=True):
        assert [entry[0] for entry in found] == pytest.approx([entry[0] for entry in wanted], rel=1e-9, abs=1e-9)


def by_score(found):
    """Score, tokens and times of each hypothesis, best first."""
    utterances = zip(found.scores, found.tokens, found.times, strict=True)
    return [
        sorted(zip(*own, strict=True), key=lambda entry: (-float(f"{entry[0]:.9g}"), entry[1:])) for own in utterances
    ]


@pytest.mark.parametrize("kind", ["lstm", "finite-state"])
@pytest.mark.parametrize("beam", [1, 3, 7])
def test_equals_the_search_in_lists(kind, beam, monkeypatch):
    for seed in range(8):
        model = random_model(seed, kind, vocabulary=5)
        encoder_out, lengths = random_frames(4, 12), torch.tensor([9, 12, 0, 5])
        for alpha in ALPHAS:
            assert_same(monkeypatch, model, encoder_out, lengths, beam, beam, alpha, 1 + seed % 3)


def test_long_searches_over_few_tokens_are_the_same(monkeypatch):
    torch.manual_seed(1)
    for beam in (2, 4):
        model, encoder_out = search_oracles.table_model(2 * torch.randn(60, 9, 3).double(), 2)
        assert_same(monkeypatch, model, encoder_out, torch.tensor([60]), beam, beam, 0.3, 2)


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_weights_are_the_same(name, monkeypatch):
    model, encoder_out = search_oracles.table_model(EXTREMES[name].double())
    for alpha in ALPHAS:
        for beam in (1, 3, 8):
            for cap in (1, 3):
                assert_same(monkeypatch, model, encoder_out, torch.tensor([6]), beam, beam, alpha, cap)


# Ties everywhere, but no weight of 0: after one, this search may take equal scores in another order.
WEIGHTS = st.sampled_from([-3.0, -1.0, 0.0, 0.0, 1.0, 30.0, 1000.0])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    weights=st.lists(WEIGHTS, min_size=36, max_size=36),
    beam=st.integers(1, 6),
    alpha=st.sampled_from(ALPHAS),
    cap=st.integers(1, 3),
)
def test_any_weights_are_the_same(weights, beam, alpha, cap):
    with pytest.MonkeyPatch.context() as patch:
        model, encoder_out = search_oracles.table_model(torch.tensor(weights).double().view(4, 3, 3))
        assert_same(patch, model, encoder_out, torch.tensor([4]), beam, beam, alpha, cap)


def test_padding_and_what_neighbours_do_after_their_end_do_not_matter(monkeypatch):
    model = random_model(5, "lstm", vocabulary=5)
    encoder_out, lengths = random_frames(3, 10), torch.tensor([4, 10, 7])
    wanted = beam_search(model, encoder_out, lengths, 4, 4, 0.3, 3)
    for utterance, length in enumerate(lengths):
        encoder_out[utterance, length:] = math.nan
    monkeypatch.setattr(beam_module, "may_look", lambda tensor: False)
    found = beam_search(model, encoder_out, lengths, 4, 4, 0.3, 3)
    assert (found.tokens, found.times) == (wanted.tokens, wanted.times)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused(value, monkeypatch):
    table = torch.zeros(4, 3, 3).double()
    table[2, :, 1] = value
    model, encoder_out = search_oracles.table_model(table)
    monkeypatch.setattr(beam_module, "may_look", lambda tensor: False)
    with pytest.raises(ValueError, match="NaN or infinitely large for utterances \\[1\\]"):
        beam_search(model, encoder_out.repeat(2, 1, 1), torch.tensor([2, 4]), 2, 2, 0.3, 1)


@pytest.mark.parametrize("kind", ["lstm", "finite-state"])
def test_the_steps_of_a_frame_can_be_compiled_whole(kind):
    model = random_model(1, kind, vocabulary=5)
    encoder_out, lengths = random_frames(3, 8), [8, 5, 0]
    wanted = beam_search(model, encoder_out, torch.tensor(lengths), 4, 4, 0.3, 2)
    with torch.no_grad():
        search = DeviceSearch(model, 3, SearchRules(4, 0.3, 2))
        joined = JoinedFrames.of([search.project(encoder_out)], [lengths])
    for name in ("begin", "extend", "end"):
        # Inductor gives the same, but takes half a minute to compile.
        setattr(search, name, torch.compile(getattr(search, name), fullgraph=True, backend="aot_eager"))
    found = run_on_device(search, joined).best(4)
    assert (found.tokens, found.times) == (wanted.tokens, wanted.times)
    for ours, theirs in zip(found.scores, wanted.scores, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


class Launched(device_run.Graphs):
    """Takes the way of graphs, but launches every call."""

    def __init__(self, wanted):
        super().__init__(True)

    def run(self, name, call):
        return call()


def test_tensors_that_graphs_hold_are_copied_from_frame_to_frame(monkeypatch):
    monkeypatch.setattr(beam_module, "may_look", lambda tensor: False)
    for seed in (1, 2):
        # Alone, an utterance has frames that leave rounds out, of which older frames have left something behind.
        for lengths in ([90], [70, 3]):
            frames = random_frames(len(lengths), max(lengths))
            arguments = (random_model(seed, "lstm", vocabulary=5), frames, torch.tensor(lengths), 3, 3, 1.0, 3)
            wanted = beam_search(*arguments)
            with monkeypatch.context() as patch:
                patch.setattr(device_run, "Graphs", Launched)
                assert beam_search(*arguments) == wanted


def test_a_beam_that_was_lost_stays_lost_and_is_no_fault(monkeypatch):
    table = torch.zeros(5, 3, 3).double()
    table[2] = -math.inf
    table[4] = math.nan
    model, encoder_out = search_oracles.table_model(table)
    lengths = torch.tensor([5, 2, 4])
    for alpha in ALPHAS:
        found = search_both(monkeypatch, model, encoder_out.repeat(3, 1, 1), lengths, 3, 3, alpha, 2)
        assert found[1].tokens[0] == found[0].tokens[0] == [[]]
        assert found[1].scores[0] == found[0].scores[0] == found[1].scores[2] == [-math.inf]
        assert found[1].tokens[1] == found[0].tokens[1] and len(found[1].tokens[1]) == 3


class Operations(TorchDispatchMode):
    """Counts operations that are no views."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += not (function.is_view or "empty" in function.name() or "_unsafe_view" in function.name())
        return function(*args, **(kwargs or {}))


def test_steps_take_few_operations():
    model = random_model(1, "lstm", vocabulary=5)
    model.predictor.float()
    model.joiner.float()
    with torch.no_grad():
        search = DeviceSearch(model, 3, SearchRules(4, 1.0, 2))
        counts = []
        for step in (search.begin, lambda: search.extend(1), lambda: search.end(1)):
            with Operations() as operations:
                step()
            counts.append(operations.count)
    # An operation more in a frame is hundreds of launches more in an update. Two layers here, and rows of two widths.
    assert counts[0] <= 13 and counts[1] <= 32 and counts[2] <= 6, counts


def test_steps_look_at_no_value_and_keep_their_tensors():
    # Tensors on the meta device have no values: whatever needs one raises.
    model = random_model(0, "lstm", vocabulary=5)
    model.predictor.to("meta")
    model.joiner.to("meta")
    search = DeviceSearch(model, 3, SearchRules(4, 0.3, 2))
    before = {name: id(tensor) for name, tensor in vars(search.frame).items()}
    for _ in range(2):
        search.begin()
        search.extend(1)
        search.extend(2)
        search.end(2)
        search.end(0)
    assert {name: id(tensor) for name, tensor in vars(search.frame).items()} == before


@pytest.mark.parametrize("rounds", [1, 2])
def test_whatever_a_predictor_remembers_comes_back_as_it_was(rounds):
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 4), (6, 2, 3, 4), (6, 2, 5), (6,), (6, 1, 4)]
    layout, planes, expected = None, None, []
    for number in range(rounds):
        parts = tuple(torch.randn(shape, generator=generator) for shape in shapes)
        parts += (torch.randint(9, (6, 4), generator=generator),)
        layout = layout or RowLayout(parts)
        before, planes = planes, layout.empty(parts, number + 1)
        layout.pack(parts, planes, before)
        expected.append(parts)
    for number, parts in enumerate(expected):
        found = layout.unpack({kind: own[:, number] for kind, own in planes.items()})
        assert [part.dtype for part in found] == [part.dtype for part in parts]
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, parts, strict=True))
