"""Invariant: validation recognises as recognition will."""

import pytest

from transducer_gn.recognition import utterances
from transducer_gn.search.beam import beam_search


@pytest.mark.parametrize(("alpha", "limit"), [(0.5, 2), (1.0, 3)], ids=["global: as competitors", "local"])
def test_validation_searches_no_further_than_competitors_were_searched(train, tmp_path, monkeypatch, alpha, limit):
    used = []

    def noting(*arguments, **settings):
        used.append(settings["max_tokens_per_frame"])
        return beam_search(*arguments, **settings)

    monkeypatch.setattr(utterances, "beam_search", noting)
    train(tmp_path / "exp", **{"training.epochs": 1, "training.memory_scan": "false", "normalisation.alpha": alpha})
    assert set(used) == {limit}
