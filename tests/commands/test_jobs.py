"""Invariant: jobs run in order and never more than allowed at a time, what they write bears their name, and a stop or a
failure leaves none running.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from scripts import REPOSITORY

from transducer_gn.commands.jobs import Job, JobRunner, Stopped
from transducer_gn.common import threads
from transducer_gn.common.errors import UserError


def python(code: str) -> tuple[str, ...]:
    return ("python", "-c", textwrap.dedent(code))


def recording(path: Path, name: str, seconds: float = 0.3, **changes) -> Job:
    """A job that writes when it began and when it ended."""
    code = f"""
        import time
        with open({str(path)!r}, "a") as file:
            file.write("begin {name}\\n"); file.flush(); time.sleep({seconds}); file.write("end {name}\\n")
    """
    return Job(name, python(code), **changes)


def most_at_a_time(lines: list[str]) -> int:
    most = now = 0
    for line in lines:
        now += 1 if line.startswith("begin") else -1
        most = max(most, now)
    return most


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_no_more_than_allowed_run_at_a_time_and_in_order(tmp_path, jobs):
    runner = JobRunner(jobs)
    with runner.listening():
        for name in "abcde":
            runner.start(recording(tmp_path / "log", name))
        runner.finish()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 10 and most_at_a_time(lines) == jobs
    if jobs == 1:
        assert lines == [f"{what} {name}" for name in "abcde" for what in ("begin", "end")]


def test_a_job_waits_for_its_parent_and_one_alone_has_nobody_beside_it(tmp_path):
    runner, log = JobRunner(4), tmp_path / "log"
    with runner.listening():
        runner.start(recording(log, "alone", alone=True))
        runner.start(recording(log, "parent"))
        runner.start(recording(log, "other"))
        runner.start(recording(log, "child", after="parent"))
        runner.start(recording(log, "last", alone=True))
        runner.finish()
    lines = log.read_text().splitlines()
    assert lines[-2:] == ["begin last", "end last"]
    assert lines[:2] == ["begin alone", "end alone"]
    assert lines.index("end parent") < lines.index("begin child")
    assert lines.index("begin other") < lines.index("end parent")


def test_jobs_of_one_name_run_one_after_the_other(tmp_path):
    runner, log = JobRunner(3), tmp_path / "log"
    with runner.listening():
        runner.start(replace(recording(log, "first"), name="run"))
        runner.start(replace(recording(log, "second"), name="run"))
        runner.start(recording(log, "other"))
        runner.finish()
        assert sorted(log.read_text().splitlines()[2:]) == ["begin other", "begin second", "end other", "end second"]
    assert log.read_text().splitlines()[:2] == ["begin first", "end first"]


def test_output_bears_the_name_and_jobs_have_their_threads(capfd):
    runner = JobRunner(2)
    with runner.listening():
        code = "import os, sys; print(os.environ['OMP_NUM_THREADS']); print('bad', file=sys.stderr)"
        runner.start(Job("first", python(code), threads=3))
        runner.start(Job("second", python(code), threads=5))
        runner.finish()
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == ["[first] 3", "[first] bad", "[second] 5", "[second] bad"]


@pytest.mark.parametrize(("alone", "number", "user", "bound"), [(1, 3, 0, 1), (0, 3, 0, 0), (1, 2, 0, 0), (1, 3, 1, 0)])
def test_threads_of_a_job_on_all_cores_wait_as_those_of_training_do(monkeypatch, capfd, alone, number, user, bound):
    monkeypatch.setattr("transducer_gn.commands.jobs.default_jobs", lambda: 3)
    for name in (*threads.SETTINGS, *threads.OTHERS):
        monkeypatch.delenv(name, raising=False)
    if user:
        monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    runner = JobRunner(2)
    with runner.listening():
        code = "import os; print(os.environ.get('OMP_PROC_BIND'), os.environ['OMP_NUM_THREADS'])"
        runner.start(Job("job", python(code), alone=bool(alone), threads=number))
        runner.finish()
    assert capfd.readouterr().out == f"[job] {'true' if bound else None} {number}\n"


def test_after_a_failure_nothing_is_started_and_what_runs_may_finish(tmp_path):
    runner, log = JobRunner(2), tmp_path / "log"
    jobs = [recording(log, "long", 1.5), Job("bad", python("raise SystemExit(3)")), recording(log, "never")]
    with runner.listening(), pytest.raises(UserError, match="a command failed.*goes on from there"):
        list(map(runner.start, jobs))
    assert log.read_text().splitlines() == ["begin long", "end long"]


SAVING = """
    import pathlib, signal, sys, time
    def save(*_):
        time.sleep(0.5); pathlib.Path(sys.argv[1]).write_text("saved"); sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGINT, lambda *_: sys.exit(9))
    pathlib.Path(sys.argv[1]).write_text("ready")
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_reaches_all_and_gives_them_time_to_save(tmp_path, number):
    files = [tmp_path / "a", tmp_path / "b"]
    runner = JobRunner(2)

    def run_and_stop():
        for file in files:
            runner.start(Job(file.name, (*python(SAVING), str(file))))
        wait_until(lambda: all(file.exists() and file.read_text() == "ready" for file in files))
        os.kill(os.getpid(), number)
        runner.finish()

    with pytest.raises(Stopped) as caught, runner.listening():
        run_and_stop()
    assert caught.value.code == 128 + number
    assert [file.read_text() for file in files] == ["saved", "saved"]


def test_a_stop_reaches_what_a_shell_script_runs(tmp_path):
    inner = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    runner = JobRunner(1)
    script = tmp_path / "script.sh"
    script.write_text(f'#!/bin/bash\n"{sys.executable}" -c "{inner}"\ntrue\n')
    script.chmod(0o755)

    def run_and_stop():
        runner.jobs = 2  # so that starting does not wait for its end
        runner.start(Job("prepare", (str(script),), has_children=True))
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        os.kill(os.getpid(), signal.SIGTERM)
        runner.finish()

    with pytest.raises(Stopped), runner.listening():
        run_and_stop()
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def test_a_second_stop_ends_what_does_not_listen(tmp_path):
    """In a process of its own: the second signal must come while the first is being worked on."""
    code = f"""
        import signal
        from transducer_gn.commands.jobs import Job, JobRunner, Stopped
        deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        deaf += "open({str(tmp_path / "on")!r}, 'w'); time.sleep(60)"
        runner = JobRunner(2)
        try:
            with runner.listening():
                runner.start(Job("deaf", ("python", "-c", deaf)))
                runner.finish()
        except Stopped as stopped:
            raise SystemExit(stopped.code)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "on").exists)
    process.send_signal(signal.SIGTERM)
    assert "stopping: deaf" in process.stderr.readline()
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143


def wait_until(condition) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise TimeoutError
