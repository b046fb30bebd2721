"""Invariant: every voice is heard in one part only, and no two are the same."""

from fresh_process import in_fresh_process, say_some_words

from transducer_gn.synthetic.speakers import VOICES, speakers_of


def test_every_voice_exists_and_sounds_unlike_every_other():
    everyone = [voice for voices in VOICES.values() for voice in voices]
    spoken = [in_fresh_process(say_some_words, voice) for voice in everyone]
    assert len(set(spoken)) == len(set(everyone)) == len(everyone)


def test_parts_share_no_speaker_and_no_voice():
    speakers = {part: speakers_of(part, 2, seed=0) for part in VOICES}
    assert len({s.id for part in speakers.values() for s in part}) == sum(map(len, speakers.values()))
    assert not set(VOICES["train"]) & set(VOICES["dev"] + VOICES["test"])
    assert not set(VOICES["dev"]) & set(VOICES["test"])


def test_a_voice_has_speakers_of_its_own_whatever_the_others():
    once, twice = speakers_of("dev", 1, seed=4), speakers_of("dev", 2, seed=4)
    assert twice[: len(once)] == once
    assert {(s.rate, s.pitch) for s in speakers_of("dev", 1, seed=5)} != {(s.rate, s.pitch) for s in once}
