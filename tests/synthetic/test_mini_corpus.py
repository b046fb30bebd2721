"""Invariant: until the settling word starts, nothing that can be heard tells an ambiguous word's two labels apart;
in controls nothing ever does. All audio depends on the seed alone.
"""

import json
import subprocess
import time

import numpy as np
import pytest
import soundfile
from fresh_process import in_fresh_process
from small_corpora import TINY, tree_bytes

from transducer_gn.common.errors import UserError
from transducer_gn.config import MiniCorpusConfig
from transducer_gn.synthetic import mini_corpus
from transducer_gn.synthetic.mini_corpus import Chapter, make_mini_corpus
from transducer_gn.synthetic.sentences import AMBIGUOUS, CONTROL
from transducer_gn.synthetic.speakers import speakers_of

SETTINGS = MiniCorpusConfig(train=40, dev=8, test=8, control=0.25, speakers_per_voice=1)


def speak_test_chapter() -> list:
    speaker = speakers_of("test", 1, seed=0)[0]
    return mini_corpus.speak_chapter(Chapter("test", speaker, 1, 60), SETTINGS)


@pytest.fixture(scope="module")
def chapter():
    return in_fresh_process(speak_test_chapter)


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
    # Calls that spoke the same chapter at once have left one beside a finished folder.
    (tmp_path / "two" / "test-mini" / "3000" / ".partial-1").mkdir()
    (tmp_path / "two" / "test-mini" / "3000" / ".partial-1" / "3000-1-0000.flac").write_bytes(b"half")
    (tmp_path / "two" / "SPEAKERS.TXT").unlink()
    make_mini_corpus(tmp_path / "two", SETTINGS, jobs=2)
    assert tree_bytes(tmp_path / "two") == whole


def test_a_call_that_follows_a_killed_one_waits_until_nobody_speaks(program, tmp_path):
    lock = subprocess.Popen(["flock", tmp_path / ".lock", "sleep", "2"])
    time.sleep(0.3)
    result = program("make_mini_corpus", "--corpus-dir", tmp_path, *TINY)
    assert "Waiting for another process, which speaks in" in result.stderr and lock.poll() == 0
    assert program("make_mini_corpus", "--corpus-dir", tmp_path, *TINY).stdout.endswith("is complete\n")


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


def test_only_chosen_distances_are_on_record():
    """A corpus of all distances says what it always said, so that one that is there is still known."""
    assert "distances" not in MiniCorpusConfig().record()
    assert MiniCorpusConfig(distances=(0, 1)).record()["distances"] == (0, 1)


BAD = [("train", 0), ("speakers_per_voice", 0), ("control", 0.7), ("distances", ()), ("distances", (7,))]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_settings_that_make_no_sense_are_named(name, value):
    with pytest.raises(UserError, match=f"--{name.replace('_', '-')}: "):
        MiniCorpusConfig(**{name: value})
