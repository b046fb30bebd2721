"""Invariant: settings give the front end that they name, and each kind's streams give the vectors of whole utterances
with as many as its framing counts.
"""

from pathlib import Path

import pytest
import torch
from small_moonshine import PUBLISHED_FILE, audio, needs_published_file

from transducer_gn.common.errors import UserError
from transducer_gn.config.front_end import FrontEndConfig
from transducer_gn.model.front_end import FrontEnd
from transducer_gn.recognition.front_end import front_end_of


def check_streams(front_end: FrontEnd, tolerance: float) -> None:
    (samples,) = audio(25000)
    stream = front_end.open()
    streamed = torch.cat([stream.accept(samples[:7000]), stream.accept(samples[7000:]), stream.finish()])
    whole = front_end.compute(samples)
    assert whole.shape == (front_end.framing.feature_frames(25000), front_end.framing.feature_dim)
    torch.testing.assert_close(streamed, whole, rtol=0, atol=tolerance)


def test_filter_banks() -> None:
    check_streams(front_end_of(FrontEndConfig()), 1e-4)


@needs_published_file
def test_moonshine() -> None:
    front_end = front_end_of(FrontEndConfig("moonshine-tiny", file=str(PUBLISHED_FILE), right=320))
    front_end.fit(audio(30000, seed=1))
    check_streams(front_end, 1e-3)
    assert front_end.fingerprint()["weights"].startswith("cbbf580f")


def test_a_missing_file_is_refused_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="model.front_end.file: moonshine-tiny needs .*npm pack"):
        front_end_of(FrontEndConfig("moonshine-tiny"))
    with pytest.raises(UserError, match="none.onnx: there is no such file; .*npm pack"):
        front_end_of(FrontEndConfig("moonshine-tiny", file=str(tmp_path / "none.onnx")))
