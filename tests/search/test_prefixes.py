"""A store gives prefixes what the predictor says about them, forgets only what nobody holds, and stays small."""

import pytest
import search_oracles
import torch
from search_oracles import random_frames, random_model

from transducer_gn.search.beam import BeamSearch, advance_over, beam_search
from transducer_gn.search.prefixes import FIRST_ROWS, NO_ROW, PrefixStore, Reader


class Holder:
    """Holds the prefixes it is given."""

    def __init__(self, prefixes):
        self.prefixes = prefixes


@torch.no_grad()
def test_outputs_are_those_of_whole_sequences_however_many_there_are():
    model = random_model(2, "lstm", vocabulary=4)
    store = PrefixStore(Reader(model.predictor, model.joiner))
    level = [store.root()]
    for _ in range(4):
        level = [prefix.extend(token) for prefix in level for token in (1, 2, 3)]
        store.read(level)
    assert len(level) > FIRST_ROWS
    sequences = torch.tensor([prefix.tokens() for prefix in level])
    wanted = model.joiner.project_predictor(model.predictor.unroll(sequences)[:, -1])
    torch.testing.assert_close(store.gather(level), wanted, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_what_is_held_stays_and_what_is_not_goes_oldest_first():
    model = random_model(2, "lstm", vocabulary=4)
    store = PrefixStore(Reader(model.predictor, model.joiner))
    root = store.root()
    chain = [root.extend(1)]
    store.read(chain)
    while len(chain) < FIRST_ROWS - 1:
        chain.append(chain[-1].extend(1 + len(chain) % 3))
        store.read(chain[-1:])
    # All rows but that of the empty prefix are in use, and there are no more than at first.
    assert len(store.outputs) == FIRST_ROWS and len({prefix.row for prefix in (root, *chain)}) == FIRST_ROWS
    holder = Holder([chain[2]])
    store.hold(holder)
    kept = store.gather([chain[2]])
    store.make_room()
    assert chain[2].row != NO_ROW and torch.equal(store.gather([chain[2]]), kept)
    assert chain[0].row == NO_ROW and chain[-1].row != NO_ROW
    # Nodes on the way to something that has a row are still known.
    assert root.extensions[1] is chain[0]
    # Once nobody holds it, it goes with the rest, and nothing of the way is left.
    del holder
    last = root.extend(2)
    store.read([last])
    store.hold(other := Holder([last]))
    while chain[-1].row != NO_ROW:
        last = last.extend(1)
        store.read([last])
        store.make_room()
    assert list(root.extensions) == [2] and other.prefixes[0].row != NO_ROW


@torch.no_grad()
def test_a_long_stream_keeps_what_is_on_the_way_to_its_beam_and_loses_nothing():
    model = random_model(4, "lstm", vocabulary=5)
    encoder_out = random_frames(1, 400)
    wanted = beam_search(model, encoder_out, torch.tensor([400]), 3, 3, 0.3, 2)
    search = BeamSearch(model, 3, 0.3, 2)
    beams = search.start(1)
    settled = []
    for chunk in encoder_out.split(10, dim=1):
        advance_over(search, beams, chunk, [chunk.shape[1]])
        taken, tail = beams[0].settle()
        settled += taken
        on_the_way = {prefix for tip in beams[0].prefixes for prefix in tip.path()}
        assert 1 + len(on_the_way) <= beams[0].size() <= 1 + len(on_the_way) + FIRST_ROWS
    assert [token for token, _ in settled + tail] == wanted.tokens[0][0]
    assert [time for _, time in settled + tail] == wanted.times[0][0]
    assert len(settled) > 100


@torch.no_grad()
def test_a_long_search_side_by_side_needs_no_more_rows_than_a_short_one():
    search = BeamSearch(random_model(4, "lstm", vocabulary=5), 3, 0.3, 2)
    beams, rows = search.start(2), []
    for chunk in random_frames(2, 300).split(50, dim=1):
        advance_over(search, beams, chunk, [chunk.shape[1]] * 2)
        rows.append(len(search._store.outputs))
    assert len(set(rows)) == 1, rows


@torch.no_grad()
def test_every_prefix_that_a_beam_keeps_counts_as_memory():
    search = BeamSearch(random_model(4, "lstm", vocabulary=5), 3, 0.3, 2)
    (beam,) = search.start(1)
    held = [search.held_bytes(beam)]
    for token in (1, 2):
        beam.root.extend(token)
        held.append(search.held_bytes(beam))
    assert held[0] > 0 and held[1] - held[0] == held[2] - held[1] > 0


@pytest.mark.parametrize("alone", [True, False])
@torch.no_grad()
def test_a_beam_is_in_order_after_every_frame(alone):
    """Best first, relative to the best: what a stream shows is the first."""
    search = BeamSearch(random_model(4, "lstm", vocabulary=5), 3, 0.3, 2)
    beams, seen = search.start(1 if alone else 2), []
    beams[0].watch = lambda beam: seen.append(list(beam.scores))
    # Blanks are likely in most frames, so that hypotheses pass many of them, and change places there.
    advance_over(search, beams, random_frames(len(beams), 200), [200] * len(beams))
    assert len(seen) == 200
    assert all(scores[0] == 0 and scores == sorted(scores, reverse=True) for scores in seen)


def test_hypotheses_that_agree_settle_on_what_they_share():
    # After two frames [1] and [1, 2] are left, after three [1, 2] alone.
    table = torch.full((3, 3, 3), -torch.inf).double()
    table[0, 0, 1] = table[0, 1, 0] = 0
    table[1, 1, 0] = table[1, 1, 2] = table[1, 2, 0] = 0
    table[2, 2, 0] = 0
    model, encoder_out = search_oracles.table_model(table)
    search = BeamSearch(model, 4, 0.0, 1)
    beams = search.start(1)
    frames = search.project(encoder_out)
    search.advance(beams, frames[:, 0])
    assert beams[0].settle() == ([(1, 0)], [])
    search.advance(beams, frames[:, 1])
    settled, tail = beams[0].settle()
    assert settled == [] and tail in ([], [(2, 1)])
    search.advance(beams, frames[:, 2])
    assert beams[0].settle() == ([(2, 1)], [])
    assert search.hypotheses(beams).tokens == [[[]]]
    assert search.hypotheses(beams).scores[0] == pytest.approx([0.0])
