"""Invariant: a table and its clips become a part in LibriSpeech's layout, whole or not at all; what is left out is
listed with its reason.
"""

import os

import numpy as np
import pytest
import soundfile
from small_corpora import tree_bytes

from transducer_gn.common.errors import UserError
from transducer_gn.data import common_voice
from transducer_gn.data.common_voice import Imported, duration_fault, import_common_voice, read_clip
from transducer_gn.data.layout import find_parts, read_part

HEADING = "client_id\tpath\tsentence\tup_votes\n"
RECORD = ("record.json", "{}\n")


def noise(seconds, rate=16000):
    """Samples in 16 bits, the same each time."""
    return np.random.default_rng(0).integers(-3000, 3000, round(seconds * rate)).astype(np.int16)


def write_clip(path, samples, rate=16000, form="FLAC", subtype="PCM_16"):
    """Write a clip of whatever format; those who read it go by its content."""
    with path.open("wb") as file:
        soundfile.write(file, samples, rate, format=form, subtype=subtype)


def write_table(path, *rows):
    """Write a table with a speaker, a clip and a sentence in each row."""
    path.write_text(HEADING + "".join("\t".join([*row, "2"]) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def source(tmp_path):
    """A folder with a table of seven clips, of which four are good, by two of three speakers."""
    clips = tmp_path / "clips"
    clips.mkdir()
    write_clip(clips / "a.mp3", noise(1.5))
    write_clip(clips / "b.mp3", noise(1.25))
    write_clip(clips / "c.mp3", noise(2))
    write_clip(clips / "d.mp3", noise(1.1))
    write_clip(clips / "short.mp3", noise(1))
    (clips / "broken.mp3").write_text("this is no audio")
    write_table(
        tmp_path / "table.tsv",
        ("nobody", "short.mp3", "One second alone."),
        ("zoe", "a.mp3", 'He was called the "Blacksmith of Ballinalee".'),
        ("adam", "b.mp3", "It\u2019s well-known, isn't it?"),
        ("zoe", "numbers.mp3", "There were 12 of them."),
        ("zoe", "nowhere.mp3", "Nobody recorded this."),
        ("zoe", "c.mp3", "Yes; no / perhaps\u2026"),
        ("adam", "broken.mp3", "This is damaged."),
        ("adam", "d.mp3", '"Quoted"'),
    )
    return tmp_path


def imported(source, jobs=1, part="corpus/common-voice"):
    """Import the fixture."""
    return import_common_voice(source / "table.tsv", source / "clips", source / part, jobs, RECORD)


def test_names_texts_and_samples_are_those_that_were_written(source):
    assert imported(source) == Imported(clips=4, speakers=2, seconds=1.5 + 1.25 + 2 + 1.1)
    part = source / "corpus" / "common-voice"
    files = tree_bytes(part)
    assert files.keys() == {
        "900000/1/900000-1-0000.flac",
        "900000/1/900000-1-0001.flac",
        "900000/1/900000-1.trans.txt",
        "900001/1/900001-1-0000.flac",
        "900001/1/900001-1-0001.flac",
        "900001/1/900001-1.trans.txt",
        "left_out.txt",
        "record.json",
    }
    assert files["900000/1/900000-1.trans.txt"].decode() == (
        "900000-1-0000 HE WAS CALLED THE BLACKSMITH OF BALLINALEE\n900000-1-0001 YES NO PERHAPS\n"
    )
    assert files["900001/1/900001-1.trans.txt"].decode() == (
        "900001-1-0000 IT'S WELL KNOWN ISN'T IT\n900001-1-0001 QUOTED\n"
    )
    assert files["record.json"] == b"{}\n"
    for name, seconds in {
        "900000-1-0000": 1.5,
        "900000-1-0001": 2,
        "900001-1-0000": 1.25,
        "900001-1-0001": 1.1,
    }.items():
        samples, rate = soundfile.read(part / name[:6] / "1" / f"{name}.flac", dtype="int16")
        assert rate == 16000 and np.array_equal(samples, noise(seconds))


def test_the_rest_of_the_package_takes_it_for_a_part(source):
    imported(source)
    assert find_parts(source / "corpus") == ["common-voice"]
    utterances, problems = read_part(source / "corpus", "common-voice")
    assert len(utterances) == 4 and not problems and utterances[-1].speaker == "900001"


def test_what_is_left_out_is_listed_with_its_reason(source, capsys):
    imported(source)
    lines = (source / "corpus" / "common-voice" / "left_out.txt").read_text().splitlines()
    table, clips = source / "table.tsv", source / "clips"
    assert lines[:3] == [
        f"{table}, line 5, numbers.mp3: no sentence of English words alone: There were 12 of them.",
        f"{table}, line 2, short.mp3: 1.0 s, not between 1 and 20",
        f"{table}, line 6, nowhere.mp3: there is no {clips / 'nowhere.mp3'}",
    ]
    assert lines[3].startswith(f"{table}, line 8, broken.mp3: the audio cannot be read (") and len(lines) == 4
    assert "Left out 4 bad utterances" in capsys.readouterr().out


def test_a_quotation_that_does_not_end_belongs_to_its_sentence(source):
    write_table(source / "table.tsv", ("zoe", "a.mp3", '"Yes, he said.'), ("adam", "b.mp3", 'No "he said.'))
    assert imported(source).clips == 2
    texts = sorted(path.read_text() for path in source.glob("corpus/common-voice/*/1/*.txt"))
    assert [text.split(maxsplit=1)[1] for text in texts] == ["YES HE SAID\n", "NO HE SAID\n"]


def test_a_line_without_all_columns_is_left_out(source):
    with (source / "table.tsv").open("a") as file:
        file.write("zoe\ta.mp3\n\ta.mp3\tNobody says so.\n")
    assert imported(source).clips == 4
    listed = (source / "corpus" / "common-voice" / "left_out.txt").read_text()
    assert "line 10, a.mp3: without sentence\n" in listed and "line 11, a.mp3: without client_id\n" in listed


def test_the_number_of_jobs_changes_nothing(source, monkeypatch):
    monkeypatch.setattr(common_voice, "CLIPS_PER_TASK", 1)
    imported(source, jobs=3, part="many")
    monkeypatch.undo()
    imported(source, jobs=1, part="one")
    assert tree_bytes(source / "many") == tree_bytes(source / "one")


def test_an_mp3_of_another_rate_is_the_same_sound(tmp_path):
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(2 * 48000) / 48000)
    write_clip(tmp_path / "tone.mp3", tone, 48000, "MP3", "MPEG_LAYER_III")
    assert (tmp_path / "tone.mp3").read_bytes()[:4] != b"fLaC"
    samples = read_clip(tmp_path / "tone.mp3")
    # Encoders may add a frame or two of silence.
    assert 32000 <= len(samples) < 34000 and samples.dtype == np.float32
    spectrum = np.abs(np.fft.rfft(samples[8000:24000]))
    assert spectrum.argmax() == 440 and spectrum[440] / 8000 == pytest.approx(0.5, rel=0.05)


def test_channels_are_averaged(tmp_path):
    left = np.full(16000, 100, dtype=np.int16)
    write_clip(tmp_path / "two.mp3", np.stack([left, 3 * left], axis=1))
    assert np.array_equal(read_clip(tmp_path / "two.mp3"), np.full(16000, 200 / 32768, dtype=np.float32))


def test_what_is_too_loud_is_cut_off_and_does_not_wrap_around(source):
    write_clip(source / "clips" / "a.mp3", np.tile([1.5, -1.5], 12000), 16000, "WAV", "FLOAT")
    imported(source)
    path = source / "corpus" / "common-voice" / "900000" / "1" / "900000-1-0000.flac"
    samples, _ = soundfile.read(path, dtype="int16")
    assert samples[::2].min() == 32767 and samples[1::2].max() == -32768


def test_an_empty_recording_is_no_clip(tmp_path):
    write_clip(tmp_path / "empty.mp3", np.zeros(0), form="WAV")
    with pytest.raises(ValueError, match="zero length"):
        read_clip(tmp_path / "empty.mp3")


@pytest.mark.parametrize(
    ("seconds", "characters", "fault"),
    [
        (1.0, 5, "1.0 s, not between 1 and 20"),
        (1.01, 5, None),
        (19.99, 5, None),
        (20.0, 5, "20.0 s, not between 1 and 20"),
        (2.0, 60, None),
        (2.0, 61, "2.0 s for 61 characters, more than 30 in a second"),
    ],
)
def test_durations_that_are_refused(seconds, characters, fault):
    assert duration_fault(seconds, "A" * characters) == fault


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "has no column 'client_id'; --table wants"),
        (b"client_id\tpath\n", "has no column 'sentence'; --table wants"),
        (b"client_id,path,sentence\nzoe,a.mp3,Yes\n", "has no column 'client_id'"),
        (HEADING.encode(), "has no line below its heading; get it anew"),
        (HEADING.encode() + b"zoe\ta.mp3\t\xff\xfe\t2\n", "is no table of UTF-8 text"),
        (HEADING.encode() + b"zoe\ta.mp3\t" + b"A" * 200_000 + b"\t2\n", "is no table of UTF-8 text"),
        (
            HEADING.encode() + b"zoe\tnowhere.mp3\tYes no.\t2\n",
            "none of the 1 clips .*--clips.*there is no .*nowhere",
        ),
    ],
)
def test_a_table_of_which_nothing_comes_is_named_and_nothing_is_written(source, content, sentence):
    (source / "table.tsv").write_bytes(content)
    with pytest.raises(UserError, match=sentence) as caught:
        imported(source)
    assert str(source / "table.tsv") in str(caught.value)
    assert not list(source.glob("corpus/*"))


def test_an_import_that_was_interrupted_leaves_no_part_and_can_be_repeated(source, monkeypatch):
    corpus = source / "corpus"
    monkeypatch.setattr(common_voice, "arrange", interrupt)
    with pytest.raises(KeyboardInterrupt):
        imported(source)
    monkeypatch.undo()
    assert os.listdir(corpus) == []
    # As a process that was killed leaves it.
    (corpus / ".partial-common-voice" / "900000" / "1").mkdir(parents=True)
    (corpus / ".partial-common-voice" / "900000" / "1" / "900000-1-0099.flac").write_bytes(b"half")
    imported(source)
    assert os.listdir(corpus) == ["common-voice"]
    assert not list(corpus.rglob("*-0099.flac"))


def interrupt(*_):
    """What a user does."""
    raise KeyboardInterrupt


def test_a_clip_whose_name_can_be_that_of_no_file_is_left_out(source):
    write_table(source / "table.tsv", ("zoe", "a.mp3", "Yes."), ("zoe", "a" * 3000, "No."), ("zoe", "a\0b", "No."))
    assert imported(source).clips == 1
    listed = (source / "corpus" / "common-voice" / "left_out.txt").read_text().splitlines()
    assert len(listed) == 2 and listed[0].endswith("no file can be called so (File name too long)")


def test_a_header_that_promises_more_than_there_is_memory_for_is_refused(tmp_path):
    """FLAC with 2 ** 36 - 1 samples."""
    write_clip(tmp_path / "a.flac", noise(1.5))
    content = bytearray((tmp_path / "a.flac").read_bytes())
    content[21:26] = bytes([content[21] | 15]) + b"\xff" * 4
    (tmp_path / "a.flac").write_bytes(content)
    with pytest.raises(ValueError, match=r"4294967.3 s, not between 1 and 20"):
        read_clip(tmp_path / "a.flac")


@pytest.mark.parametrize(
    ("rate", "channels", "problem"),
    [(1000, 1, "1000 samples per second"), (250_000, 1, "250000 samples per second"), (16000, 9, "9 channels")],
)
def test_what_nobody_records_speech_with_is_refused(tmp_path, rate, channels, problem):
    write_clip(tmp_path / "a.wav", np.zeros((100, channels), dtype=np.int16), rate, form="WAV")
    with pytest.raises(ValueError, match=problem):
        read_clip(tmp_path / "a.wav")


def test_samples_that_are_no_numbers_are_refused(tmp_path):
    write_clip(tmp_path / "a.wav", np.full(100, np.nan, dtype=np.float32), form="WAV", subtype="FLOAT")
    with pytest.raises(ValueError, match="NaN or infinite"):
        read_clip(tmp_path / "a.wav")
