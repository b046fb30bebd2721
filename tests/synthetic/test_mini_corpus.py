"""Invariant: until the settling word starts, nothing that can be heard tells an ambiguous word's two labels apart;
in controls nothing ever does. All audio depends on the seed alone."""

import json
import random
from collections import Counter
from multiprocessing import get_context

import numpy as np
import pytest
import soundfile
from small_corpora import tree_bytes

from transducer_gn.common.errors import UserError
from transducer_gn.config import MiniCorpusConfig
from transducer_gn.synthetic import lexicon, mini_corpus, waveform
from transducer_gn.synthetic.espeak import Espeak, Prosody
from transducer_gn.synthetic.mini_corpus import Chapter, make_mini_corpus
from transducer_gn.synthetic.sentences import AMBIGUOUS, CONTROL, ORDINARY, draw_sentences
from transducer_gn.synthetic.speakers import VOICES, Speaker, speakers_of

SETTINGS = MiniCorpusConfig(train=40, dev=8, test=8, control=0.25, speakers_per_voice=1)


def in_fresh_process(function, *arguments):
    with get_context("fork").Pool(1) as pool:
        return pool.apply(function, arguments)


def say_some_words(voice: str) -> bytes:
    espeak = Espeak(voice)
    return b"".join(espeak.say(word, Prosody(220, 45, 60)).tobytes() for word in ("mail", "order", "beside"))


def speak_test_chapter() -> list:
    speaker = speakers_of("test", 1, seed=0)[0]
    return mini_corpus.speak_chapter(Chapter("test", speaker, 1, 60), SETTINGS)


@pytest.fixture(scope="module")
def chapter():
    return in_fresh_process(speak_test_chapter)


# f2 and victor are breathy: they draw noise, which espeak-ng seeds with the time of day.
@pytest.mark.parametrize("voice", ["m1", "f2", "victor"])
def test_a_fresh_process_says_the_same_samples(voice):
    assert in_fresh_process(say_some_words, voice) == in_fresh_process(say_some_words, voice)


def test_an_unknown_voice_is_refused_although_espeak_would_take_it():
    with pytest.raises(UserError, match="no voice variant 'nobody'"):
        in_fresh_process(Espeak, "nobody")


def test_every_voice_exists_and_sounds_unlike_every_other():
    everyone = [voice for voices in VOICES.values() for voice in voices]
    spoken = [in_fresh_process(say_some_words, voice) for voice in everyone]
    assert len(set(spoken)) == len(set(everyone)) == len(everyone)


def test_parts_share_no_speaker_and_no_voice():
    speakers = {part: speakers_of(part, 2, seed=0) for part in VOICES}
    assert len({s.id for part in speakers.values() for s in part}) == sum(map(len, speakers.values()))
    assert not set(VOICES["train"]) & set(VOICES["dev"] + VOICES["test"])
    assert not set(VOICES["dev"]) & set(VOICES["test"])


def test_the_lexicon_has_twenty_pairs_with_settling_words_of_their_own():
    words = [word for pair in lexicon.PAIRS for word in pair.words + pair.settling]
    assert len(lexicon.PAIRS) >= 20
    assert len(set(words)) == len(words)
    others = {word for name, category in lexicon.CATEGORIES.items() if name != "ANY_NOUN" for word in category}
    assert not others & set(words)
    assert len(others) + len(words) > 200


def test_shares_gaps_and_labels_of_drawn_sentences():
    sentences = draw_sentences(2000, ambiguous=0.5, control=0.1, draw=random.Random(0))
    assert Counter(s.kind for s in sentences) == {AMBIGUOUS: 1000, CONTROL: 200, ORDINARY: 800}
    ambiguous = [s for s in sentences if s.kind == AMBIGUOUS]
    assert {s.settling - s.blended - 1 for s in ambiguous} == set(range(7))
    assert max(s.blended for s in ambiguous) <= 2
    sides = Counter(s.pair.words.index(s.words[s.blended]) for s in ambiguous)
    assert sides[0] == sides[1]
    for sentence in ambiguous:
        side = sentence.pair.words.index(sentence.words[sentence.blended])
        assert sentence.words[sentence.settling] == sentence.pair.settling[side]


def test_what_surrounds_an_ambiguous_word_never_settles_it():
    sentences = draw_sentences(3000, ambiguous=0.5, control=0.3, draw=random.Random(1))
    telling = {word for pair in lexicon.PAIRS for word in pair.words + pair.settling}
    for sentence in sentences:
        if sentence.kind != ORDINARY:
            allowed = {sentence.blended, sentence.settling}
            assert not telling & {word for index, word in enumerate(sentence.words) if index not in allowed}


def test_twins_sound_the_same_until_the_settling_word(chapter):
    twins = {}
    for spoken in chapter:
        if spoken.sentence.kind == AMBIGUOUS:
            twins.setdefault(spoken.sentence.twin, []).append(spoken)
    assert len(twins) == 15
    for first, second in twins.values():
        position = first.sentence.settling
        assert first.sentence.words[position] != second.sentence.words[position]
        assert first.times[:position] == second.times[:position]
        # The filter that brings 22.05 kHz to 16 kHz looks less than 1 ms ahead.
        start = round((first.times[position][0] - 0.001) * 16000)
        assert np.array_equal(first.samples[:start], second.samples[:start])
        assert not np.array_equal(first.samples[start : start + 3200], second.samples[start : start + 3200])


def test_control_twins_sound_the_same_to_the_end_but_differ_in_their_label(chapter):
    controls = {}
    for spoken in chapter:
        if spoken.sentence.kind == CONTROL:
            controls.setdefault(spoken.sentence.twin, []).append(spoken)
    assert len(controls) == 7
    for first, second in controls.values():
        assert np.array_equal(first.samples, second.samples)
        assert {s.sentence.words[s.sentence.blended] for s in (first, second)} == set(first.sentence.pair.words)


def test_a_blend_holds_both_words_alike():
    draw = np.random.default_rng(0)
    first, second = (waveform.level(draw.standard_normal(n).astype(np.float32)) for n in (4000, 4400))
    mixed = waveform.blend(first, second, tilt=0.0)
    assert len(mixed) == 4200
    assert np.allclose(mixed, waveform.blend(second, first, tilt=0.0), atol=1e-6)
    correlations = [np.corrcoef(mixed, waveform.resample(word, 4200))[0, 1] for word in (first, second)]
    assert correlations[0] == pytest.approx(correlations[1], abs=0.05)
    assert min(correlations) > 0.6


def test_tilt_and_level_are_drawn_before_the_label_is_known():
    # Both labels of a pair come from one draw, so no property of the blend can depend on the label.
    speaker = Speaker("1", "m1", 230, 50)
    first, second = (waveform.draw_delivery(speaker, 6, random.Random(5)) for _ in range(2))
    assert first == second
    tilts = [waveform.draw_delivery(speaker, 6, random.Random(seed)).tilt for seed in range(400)]
    assert abs(np.mean(tilts)) < 0.01 and max(map(abs, tilts)) <= waveform.LARGEST_TILT


def test_words_are_where_the_times_say(chapter):
    spoken = chapter[0]
    samples = spoken.samples / 32768
    energies = [np.mean(samples[round(a * 16000) : round(b * 16000)] ** 2) for a, b in spoken.times]
    silence = np.mean(samples[: round(spoken.times[0][0] * 16000)] ** 2)
    assert min(energies) > 5 * silence
    assert spoken.times[-1][1] < len(samples) / 16000


def test_the_corpus_does_not_depend_on_the_number_of_jobs_and_finishes_what_was_interrupted(tmp_path):
    make_mini_corpus(tmp_path / "one", SETTINGS, jobs=1)
    make_mini_corpus(tmp_path / "two", SETTINGS, jobs=3)
    whole = tree_bytes(tmp_path / "one")
    assert tree_bytes(tmp_path / "two") == whole
    # An interrupted call leaves a partial folder and no finished one.
    chapter_folder = tmp_path / "two" / "dev-mini" / "2000" / "1"
    chapter_folder.rename(chapter_folder.with_name(".partial-1"))
    (chapter_folder.with_name(".partial-1") / "2000-1-0000.flac").write_bytes(b"half")
    (tmp_path / "two" / "SPEAKERS.TXT").unlink()
    make_mini_corpus(tmp_path / "two", SETTINGS, jobs=2)
    assert tree_bytes(tmp_path / "two") == whole


def test_another_seed_is_another_corpus_and_is_not_mixed_into_this_one(tmp_path):
    make_mini_corpus(tmp_path, SETTINGS, jobs=2)
    with pytest.raises(UserError, match="made with other settings"):
        make_mini_corpus(tmp_path, MiniCorpusConfig(train=40, seed=1), jobs=2)


def test_the_layout_is_librispeechs(tmp_path):
    from lhotse.recipes import prepare_librispeech

    make_mini_corpus(tmp_path, SETTINGS, jobs=2)
    manifests = prepare_librispeech(tmp_path, dataset_parts=["train-mini", "dev-mini", "test-mini"])
    sizes = {part: len(entry["recordings"]) for part, entry in manifests.items()}
    assert sizes == {"train-mini": 40, "dev-mini": 8, "test-mini": 8}
    supervision = next(iter(manifests["dev-mini"]["supervisions"]))
    words = [item.symbol for item in supervision.alignment["word"] if item.symbol]
    assert " ".join(words) == supervision.text
    info = soundfile.info(next(tmp_path.rglob("*.flac")))
    assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
    ids = {line.split("|")[0].strip() for line in (tmp_path / "SPEAKERS.TXT").read_text().splitlines()[1:]}
    assert ids == {folder.name for part in sizes for folder in (tmp_path / part).iterdir()}


def test_kinds_say_where_blend_and_settling_word_lie(tmp_path):
    make_mini_corpus(tmp_path, SETTINGS, jobs=2)
    lines = [json.loads(line) for file in tmp_path.rglob("*.kinds.jsonl") for line in file.read_text().splitlines()]
    by_id = {line["id"]: line for line in lines}
    ambiguous = [line for line in lines if line["kind"] == AMBIGUOUS]
    assert ambiguous
    for line in ambiguous:
        twin = by_id[line["twin"]]
        assert twin["twin"] == line["id"] and twin["blend"] == line["blend"] and twin["pair"] == line["pair"]
        assert line["blend"][1] < line["settling"][0]


@pytest.mark.parametrize("name, value", [("train", 0), ("speakers_per_voice", 0), ("control", 0.7)])
def test_settings_that_make_no_sense_are_named(name, value):
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')} "):
        MiniCorpusConfig(**{name: value})
