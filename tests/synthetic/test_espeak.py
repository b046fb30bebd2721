"""Invariant: what a fresh process says depends on voice and words alone."""

import pytest
from fresh_process import in_fresh_process, say_some_words

from transducer_gn.common.errors import UserError
from transducer_gn.synthetic.espeak import Espeak


# f2 and victor are breathy: they draw noise, which espeak-ng seeds with the time of day.
@pytest.mark.parametrize("voice", ["m1", "f2", "victor"])
def test_a_fresh_process_says_the_same_samples(voice):
    assert in_fresh_process(say_some_words, voice) == in_fresh_process(say_some_words, voice)


def test_an_unknown_voice_is_refused_although_espeak_would_take_it():
    with pytest.raises(UserError, match="no voice variant 'nobody'"):
        in_fresh_process(Espeak, "nobody")
