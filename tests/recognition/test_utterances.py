"""Invariant: a batch is searched as its system's settings say, and whatever is shown belongs to its utterance."""

from dataclasses import replace

import pytest
import torch
from small_systems import batch_of

from transducer_gn.config import RecognitionConfig, SearchConfig
from transducer_gn.recognition import utterances
from transducer_gn.recognition.system import load_checkpoint_system


@pytest.fixture(scope="module")
def system(checkpoint):
    return load_checkpoint_system(checkpoint, device=torch.device("cpu"))


def noise(*lengths):
    generator = torch.Generator().manual_seed(0)
    return batch_of([3 * torch.randn(length, 80, generator=generator) - 10 for length in lengths])


@pytest.mark.parametrize("graph", ["auto", "off"])
def test_graphs_are_the_systems_choice(system, graph, monkeypatch):
    asked, search = [], utterances.search_together

    def noting(model, batches, rules):
        asked.append(rules)
        return search(model, batches, rules)

    monkeypatch.setattr(utterances, "search_together", noting)
    chosen = replace(system, config=replace(system.config, search=SearchConfig(graph=graph)))
    utterances.recognise(chosen, noise(130, 97), RecognitionConfig(beam=4))
    assert [rules.graph for rules in asked] == [graph == "auto"]


def test_each_utterance_shows_something_after_each_of_its_chunks(system):
    """An utterance without any frame has taken no time and shows nothing, once."""
    settings = RecognitionConfig(beam=4, streaming="chunks")
    batch = noise(130, 2, 97)
    histories = utterances.show(system, batch, settings)
    framing, size = system.model.encoder.framing, system.chunk(settings).size
    for history, length in zip(histories, (130, 2, 97), strict=True):
        chunks = -(-framing.encoder_frames(length) // size)
        assert len(history) == max(1, chunks)
        assert history[-1].seconds == pytest.approx(length / 100)
        assert all((moment.computed > 0) == (chunks > 0) for moment in history)
    assert histories[1][0].words == []
    found = utterances.recognise(system, batch, settings)
    assert [one.hypothesis for one in found] == [history[-1].words for history in histories]
