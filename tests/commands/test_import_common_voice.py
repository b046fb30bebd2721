"""Invariant: the command makes a part once, never mixes two of them, and names the flag that is wrong."""

import numpy as np
import pytest
import soundfile
from small_corpora import tree_bytes

from transducer_gn.commands.import_common_voice import main
from transducer_gn.common.errors import UserError


@pytest.fixture
def flags(tmp_path):
    """Flags for a table of one clip."""
    (tmp_path / "clips").mkdir()
    with (tmp_path / "clips" / "a.mp3").open("wb") as file:
        soundfile.write(file, 0.1 * np.random.default_rng(0).standard_normal(36000), 16000, format="FLAC")
    (tmp_path / "table.tsv").write_text("client_id\tpath\tsentence\nzoe\ta.mp3\tWell, yes.\n")
    return {"--table": tmp_path / "table.tsv", "--clips": tmp_path / "clips", "--part": tmp_path / "corpus" / "cv"}


def run(flags):
    """Call the command."""
    main([str(word) for flag in {"--nj": 1, **flags}.items() for word in flag])


def test_a_part_is_made_once(flags, capsys):
    run(flags)
    assert capsys.readouterr().out == f"{flags['--part']}: 1 clips by 1 speakers, 0.00 hours\n"
    made = tree_bytes(flags["--part"])
    assert made["900000/1/900000-1.trans.txt"] == b"900000-1-0000 WELL YES\n"
    run(flags)
    assert capsys.readouterr().out == f"Common Voice: {flags['--part']} is complete\n"
    assert tree_bytes(flags["--part"]) == made


@pytest.mark.parametrize("what", ["--table", "--clips"])
def test_a_part_of_something_else_stays_as_it_is(flags, what):
    run(flags)
    made = tree_bytes(flags["--part"])
    changed = flags[what] if what == "--table" else flags[what] / "a.mp3"
    changed.write_bytes(changed.read_bytes() + b"zoe\ta.mp3\tMore.\n")
    with pytest.raises(UserError, match=f"{flags['--part']} is there already.*delete it, or choose another --part"):
        run(flags)
    assert tree_bytes(flags["--part"]) == made


def test_an_empty_folder_may_be_there(flags):
    flags["--part"].mkdir(parents=True)
    run(flags)
    assert (flags["--part"] / "900000").is_dir()


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--table", "nowhere.tsv", "there is no file nowhere.tsv; name a table of Common Voice with --table"),
        ("--clips", "nowhere", "there is no folder nowhere; name that of the clips with --clips"),
        ("--nj", "0", "--nj must be at least 1, not 0"),
    ],
)
def test_a_wrong_flag_is_named(flags, flag, value, sentence):
    with pytest.raises(UserError, match=sentence):
        run(flags | {flag: value})
    assert not flags["--part"].exists()
