"""Invariant: work in other processes comes back in order, and its failures come back, too; nobody outlives who started
him.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import run_each


def square(number: int) -> tuple[int, int]:
    time.sleep(0.01 * (5 - number))
    return number**2, os.getpid()


def test_results_come_in_order_each_from_a_process_of_its_own():
    results = run_each(square, [(number,) for number in range(6)], jobs=3, label="Squares")
    assert [result for result, _ in results] == [0, 1, 4, 9, 16, 25]
    assert len({process for _, process in results} | {os.getpid()}) == 7


def refuse() -> None:
    raise UserError("file x is bad")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_long() -> None:
    time.sleep(60)


def test_a_user_error_and_a_killed_process_are_reported_and_the_others_stopped():
    with pytest.raises(UserError, match="file x is bad"):
        run_each(lambda work: work(), [(refuse,), (sleep_long,)], jobs=2, label="Work")
    with pytest.raises(UserError, match="exit code -9 .* smaller --nj"):
        run_each(lambda work: work(), [(sleep_long,), (die,)], jobs=2, label="Work")


def assert_it_ends(pid: int) -> None:
    """A process that nobody waits for ends soon; it is killed if it does not."""
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("it lives on")


def test_a_process_that_asked_for_it_dies_with_the_one_that_started_it():
    """The one in the middle is killed; its child would sleep for a minute."""
    child = "import time; from transducer_gn.common.processes import die_with_parent as d; d(); print(); time.sleep(60)"
    start = f"subprocess.Popen([sys.executable, '-u', '-c', {child!r}], stdout=subprocess.PIPE)"
    middle = f"import subprocess, sys; p = {start}; p.stdout.readline(); print(p.pid); p.wait()"
    process = subprocess.Popen([sys.executable, "-u", "-c", middle], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=20)
    assert_it_ends(pid)


def test_pieces_of_work_die_with_the_process_that_started_them():
    program = """
import os, time
from transducer_gn.common.processes import run_each
def work():
    print(os.getpid(), flush=True)
    time.sleep(60)
run_each(work, [()], jobs=1, label="Work")
"""
    # Its output goes to a pipe that the piece holds, too: only its first line is read.
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert_it_ends(pid)


def test_a_process_whose_parent_has_died_before_it_asked_ends():
    program = "from transducer_gn.common.processes import die_with_parent as d; d(parent=1); print('alive')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert result.returncode == -signal.SIGKILL and result.stdout == ""


def test_children_that_do_not_listen_are_not_waited_for():
    program = """
import multiprocessing, signal, time
from transducer_gn.common.processes import no_children_left
def deaf(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(60)
ready = multiprocessing.get_context("fork").Event()
with no_children_left():
    multiprocessing.get_context("fork").Process(target=deaf, args=(ready,), daemon=True).start()
    ready.wait()
    raise ValueError("a crash")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert result.returncode == 1 and "a crash" in result.stderr
