"""Invariant: a model has the front end that its settings name, each kind's streams give the vectors of whole utterances
with as many as its framing counts, and stored features that another front end made are refused by name.
"""

import json
from pathlib import Path

import pytest
import torch
from small_moonshine import PUBLISHED_FILE, audio, needs_published_file
from small_systems import moonshine_model

from transducer_gn.common.errors import UserError
from transducer_gn.config import FrontEndConfig
from transducer_gn.data.layout import FRONT_END_RECORD
from transducer_gn.data.prepared import PreparedData
from transducer_gn.model.front_end import FrontEnd
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition.front_end import FilterBanks, check_features, front_end_of
from transducer_gn.recognition.stored_front_end import read_front_end


def check_streams(front_end: FrontEnd, tolerance: float) -> None:
    (samples,) = audio(25000)
    stream, pieces = front_end.open(), []
    for piece in (samples[:7000], samples[7000:]):
        stream.accept(piece)
        pieces += front_end.advance([stream])
    stream.finish()
    streamed = torch.cat([*pieces, *front_end.advance([stream])])
    whole = front_end.compute(samples)
    assert whole.shape == (front_end.framing.feature_frames(25000), front_end.framing.feature_dim)
    torch.testing.assert_close(streamed, whole, rtol=0, atol=tolerance)


def test_filter_banks() -> None:
    check_streams(FilterBanks(), 1e-4)


@needs_published_file
def test_moonshine() -> None:
    front_end, is_fitted = read_front_end(FrontEndConfig("moonshine-tiny", right=320), PUBLISHED_FILE)
    assert not is_fitted
    front_end.standardisation.fit(front_end.sums(samples) for samples in audio(30000, seed=1))
    check_streams(front_end, 1e-3)


def test_a_model_has_the_front_end_of_its_settings(moonshine_config) -> None:
    assert isinstance(front_end_of(build_model(type(moonshine_config)())), FilterBanks)
    model = build_model(moonshine_config)
    front_end = front_end_of(model)
    assert front_end is model.front_end
    assert front_end.framing == model.encoder.framing == moonshine_config.front_end.framing
    # Frozen: nothing of it is trained.
    assert not any(parameter.requires_grad for parameter in model.front_end.parameters())


def test_features_of_another_front_end_are_refused(moonshine_config, tmp_path: Path) -> None:
    data, front_end = PreparedData(tmp_path), front_end_of(moonshine_model(moonshine_config))
    check_features(data, FilterBanks())
    with pytest.raises(UserError, match="features of another front end .*: .*front_end is filter-banks, not moonshine"):
        check_features(data, front_end)
    (tmp_path / FRONT_END_RECORD).write_text(json.dumps(front_end.fingerprint()))
    check_features(data, front_end)
    with pytest.raises(UserError, match="front_end is moonshine-tiny, not filter-banks"):
        check_features(data, FilterBanks())
    (tmp_path / FRONT_END_RECORD).write_text(json.dumps(front_end.fingerprint() | {"chunk": 10240}))
    with pytest.raises(UserError, match="system's: chunk is 10240, not 5120. Choose"):
        check_features(data, front_end)
