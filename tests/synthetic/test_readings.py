"""Invariant: after every frame the shares of the two readings are those of the search's own hypotheses."""

import math

import pytest
import torch

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config import RecognitionConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.recognition.system import load_system
from transducer_gn.search.beam import beam_search
from transducer_gn.synthetic.readings import (
    BEAM,
    Readings,
    ambiguous_batch,
    average_after,
    follow_readings,
    reading_shares,
    telling_utterance,
)


@pytest.fixture(scope="module", params=["local", "global"])
def system(runs, request):
    return load_system(runs / request.param)


def test_readings_of_a_real_system(system, toy):
    batch = ambiguous_batch(system, PreparedData(toy.folder), "test")
    assert set(batch.groups) == {"ambiguous"}
    followed = follow_readings(system, batch)
    chunk = system.chunk(RecognitionConfig())
    frames, lengths = system.model.encoder(batch.features, batch.feature_lengths, chunk)
    found = beam_search(system.model, frames, lengths, BEAM, BEAM, system.alpha)
    for i, readings in enumerate(followed):
        assert (
            len(readings.seconds) == len(readings.right) == int(FILTER_BANKS.encoder_lengths(batch.feature_lengths)[i])
        )
        assert readings.words[0] in batch.texts[i].split() and readings.words[1] not in batch.texts[i].split()
        assert all(0 <= a + b <= 1 + 1e-9 for a, b in zip(readings.right, readings.wrong, strict=True))
        # The last frame's shares, from the search as others call it.
        scores = found.scores[i]
        weights = [2.718281828459045 ** (score - max(scores)) for score in scores]
        for word, share in zip(readings.words, (readings.right[-1], readings.wrong[-1]), strict=True):
            texts = [system.tokenizer.decode(tokens).split() for tokens in found.tokens[i]]
            firsts = [next((w for w in text if w in readings.words), None) for text in texts]
            expected = sum(weight for weight, first in zip(weights, firsts, strict=True) if first == word) / sum(
                weights
            )
            assert share == pytest.approx(expected, abs=1e-6)


def test_no_ambiguous_utterances_no_batch(system, toy):
    plain = [cut for cut in PreparedData(toy.folder).cuts("test") if cut.supervisions[0].custom["kind"] == "ordinary"]

    class Ordinary(PreparedData):
        def cuts(self, part):
            return plain

    assert plain and ambiguous_batch(system, Ordinary(toy.folder), "test") is None


def test_shares_of_readings_are_read_off_the_beam():
    texts = [["MAIL", "NAIL"], ["NAIL"], ["A"], []]
    shares = reading_shares(texts, torch.tensor([0.5, 0.25, 0.125, 0.125]).log(), ("NAIL", "MAIL"))
    assert shares == pytest.approx((0.25, 0.5))


def readings(name, right, wrong, settling=(0.3, 0.4)):
    seconds = [0.1 * (n + 1) for n in range(len(right))]
    return Readings(name, "", ("MAIL", "NAIL"), seconds, right, wrong, (0.0, 0.1), settling)


def test_the_utterance_shown_is_one_that_tells_the_systems_apart():
    local = [
        readings(name, [0.6], [0.3] if name == "a" else [0.7], (t, t + 0.1))
        for name, t in zip("abcd", (9, 3, 2, 4), strict=True)
    ]
    other = [readings(name, [share], [1 - share]) for name, share in zip("abcd", (0.9, 0.9, 0.8, 0.6), strict=True)]
    # a: the local system is right; d: not clearly right under the other; of b and c, b is settled later.
    assert telling_utterance(local, other) == "b"
    assert telling_utterance(local, local) is None


def test_average_of_readings_is_aligned_to_the_settling_word():
    one = readings("a", [0.0, 0.2, 0.2, 0.9], [0.0, 0.6, 0.2, 0.1])
    two = readings("b", [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5])
    found = average_after([one, two], [-0.25, -0.05, 0.05, 5.0])
    assert math.isnan(found[0])
    assert found[1:] == pytest.approx([0.25, (0.5 + 0) / 2, (0.9 + 0) / 2])
