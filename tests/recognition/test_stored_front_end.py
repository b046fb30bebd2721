"""Invariant: a pretrained front end comes back from its file as it was, standardisation included; that is taken from
utterances spread over all of the training parts; what is stored of audio is what the front end makes of it.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from small_moonshine import SMALL, audio, small_moonshine

from transducer_gn.config import FrontEndConfig
from transducer_gn.model.moonshine_features import MoonshineFeatures, VectorSums
from transducer_gn.recognition import stored_front_end
from transducer_gn.recognition.stored_front_end import (
    FrontEndExtractor,
    fit_front_end,
    read_front_end,
    store_front_end,
    sums_of,
)

CONFIG = FrontEndConfig("moonshine-tiny", layers=[1, 3], right=320)


@pytest.fixture
def front_end():
    """A small one that is standardised on some noise."""
    made = MoonshineFeatures(small_moonshine(), CONFIG).eval()
    made.standardisation.fit([made.sums(samples) for samples in audio(9000, 12000)])
    return made


def test_what_is_stored_comes_back_fitted(front_end, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_front_end, "MOONSHINE_TINY", SMALL)
    store_front_end(front_end, tmp_path)
    (path,) = tmp_path.glob("*.pt")
    found, is_fitted = read_front_end(CONFIG, path)
    assert is_fitted and found.fingerprint() == front_end.fingerprint()
    (samples,) = audio(8000, seed=1)
    assert torch.equal(found.eval().compute(samples), front_end.compute(samples))


def test_an_extractor_gives_the_vectors_of_the_front_end(front_end):
    (samples,) = audio(8000, seed=1)
    found = FrontEndExtractor(front_end).extract(samples.numpy()[None], 16000)
    np.testing.assert_array_equal(found, front_end.compute(samples).numpy())
    assert len(found) > 5


@pytest.mark.parametrize("count", [1, 3, 4, 7, 100])
def test_the_standardisation_is_of_utterances_spread_over_all(count, front_end, monkeypatch):
    monkeypatch.setattr(stored_front_end, "FITTED_UTTERANCES", 4)
    monkeypatch.setattr(stored_front_end, "UTTERANCES_PER_PIECE", 3)
    heard = []

    def in_this_process(work, pieces, jobs, name):
        for _, cuts, folder in pieces:
            assert folder == "here" and len(cuts) <= 3
            heard.extend(cuts)
            yield VectorSums.of(torch.randn(9, 2 * SMALL.dim))

    monkeypatch.setattr(stored_front_end, "run_each", in_this_process)
    fit_front_end(front_end, list(range(count)), "here", jobs=1)
    # As many as are wanted but for rounding, at even distances, from the first on.
    assert min(count, 2) <= len(heard) <= 4 and heard[0] == 0
    assert len({b - a for a, b in pairwise(heard)}) <= 1 and count - heard[-1] <= count / 2 + 1


class Recorded:
    """An utterance whose audio lies in a folder."""

    def __init__(self, samples, folder=None):
        self.samples, self.folder = samples, folder

    def with_recording_path_prefix(self, folder):
        return Recorded(self.samples, folder)

    def load_audio(self):
        assert self.folder == "here"
        return self.samples.numpy()[None]


@pytest.mark.parametrize("lengths", [(9000,), (9000, 12000, 8000)])
def test_a_piece_adds_what_each_of_its_utterances_adds(lengths, front_end):
    utterances = audio(*lengths)
    found = sums_of(front_end, [Recorded(samples) for samples in utterances], "here")
    each = [front_end.sums(samples) for samples in utterances]
    assert found.count == sum(own.count for own in each) > 0
    np.testing.assert_allclose(found.total, np.sum([own.total for own in each], axis=0))
    np.testing.assert_allclose(found.squares, np.sum([own.squares for own in each], axis=0))
