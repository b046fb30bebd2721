"""Invariant: whatever happens while a file is written, readers see the old content or the new, never a part."""

import errno
import os
import stat
import subprocess
import sys
from unittest.mock import Mock

import pytest

from transducer_gn.common.files import (
    exclusive,
    folder_when_done,
    remove_folder,
    replace_when_done,
    sole_user,
    write_text,
)


def test_content_appears_only_after_the_block(tmp_path):
    target = tmp_path / "table.txt"
    target.write_text("old")
    with replace_when_done(target) as sibling:
        sibling.write_text("new")
        assert target.read_text() == "old"
        assert sibling.parent == target.parent and sibling.name.endswith("table.txt")
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["table.txt"]


def test_a_failure_keeps_the_old_content_and_leaves_nothing_behind(tmp_path):
    target = tmp_path / "table.txt"
    target.write_text("old")

    def fail_halfway():
        with replace_when_done(target) as sibling:
            sibling.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.txt"]


def test_what_a_killed_writer_left_is_removed_and_what_another_writes_is_not(tmp_path):
    target, other = tmp_path / "table.txt", tmp_path / "my-table.txt"
    (tmp_path / ".partial-abc-table.txt").write_text("half")
    with replace_when_done(other) as others_sibling, replace_when_done(target) as first:
        others_sibling.write_text("other")
        first.write_text("first")
        write_text(target, "second")
        assert first.read_text() == "first" and others_sibling.exists()
    assert target.read_text() == "first" and other.read_text() == "other"
    assert sorted(os.listdir(tmp_path)) == ["my-table.txt", "table.txt"]


def test_a_folder_appears_when_it_is_whole(tmp_path):
    target = tmp_path / "new" / "part"
    with folder_when_done(target) as partial:
        (partial / "file").write_text("all of it")
        assert not target.exists()
    assert (target / "file").read_text() == "all of it"
    assert os.listdir(target.parent) == ["part"]


def test_a_folder_that_fails_is_not_there_and_what_a_killed_writer_left_is_not_in_the_next(tmp_path):
    target = tmp_path / "part"

    def fail_halfway():
        with folder_when_done(target) as partial:
            (partial / "half").write_text("of it")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert os.listdir(tmp_path) == []
    (tmp_path / ".partial-part").mkdir()
    (tmp_path / ".partial-part" / "half").write_text("of it")
    with folder_when_done(target) as partial:
        assert os.listdir(partial) == []
    assert os.listdir(tmp_path) == ["part"] and os.listdir(target) == []


def test_the_result_has_ordinary_permissions(tmp_path):
    umask = os.umask(0o022)
    try:
        write_text(tmp_path / "table.txt", "text")
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "table.txt").stat().st_mode) == 0o644


def test_only_one_process_at_a_time_has_a_folder_to_itself(tmp_path):
    program = """
import sys
from pathlib import Path
from transducer_gn.common.errors import UserError
from transducer_gn.common.files import sole_user
try:
    with sole_user(Path(sys.argv[1]), "trains in exp"):
        print("mine")
except UserError as error:
    print(error)
"""

    def other() -> str:
        command = [sys.executable, "-c", program, str(tmp_path / "lock")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with sole_user(tmp_path / "lock", "trains in exp"):
        assert other() == "another process trains in exp; wait until it has ended, or stop it\n"
    assert other() == "mine\n"


def test_who_wants_a_folder_that_another_process_has_waits_and_says_so(tmp_path):
    program = """
import sys
from pathlib import Path
from transducer_gn.common.files import exclusive
with exclusive(Path(sys.argv[1]), "speaks in corpus"):
    print("mine")
"""
    command = [sys.executable, "-u", "-c", program, str(tmp_path / "lock")]
    with exclusive(tmp_path / "lock", "speaks in corpus"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr.readline() == "Waiting for another process, which speaks in corpus\n"
        assert process.poll() is None
    assert process.communicate(timeout=30) == ("mine\n", "")


def test_a_folder_that_is_not_there_is_removed_and_one_that_must_stay_is_an_error(tmp_path, monkeypatch):
    remove_folder(tmp_path / "nothing")
    (tmp_path / ".partial-new" / "inner").mkdir(parents=True)
    with monkeypatch.context() as read_only:
        read_only.setattr(os, "rmdir", Mock(side_effect=PermissionError(errno.EPERM, "read-only")))
        with pytest.raises(PermissionError):
            remove_folder(tmp_path / ".partial-new")
        with pytest.raises(PermissionError), folder_when_done(tmp_path / "new"):
            pass
    remove_folder(tmp_path / ".partial-new")
    assert not any(tmp_path.iterdir())
