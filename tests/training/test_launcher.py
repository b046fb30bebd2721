"""Invariant: a rank that hangs after the others are done is ended, and all start again; one that is slow is not. A
launcher that is asked to stop ends its ranks and says so in a sentence.
"""

import signal
import subprocess
import sys
import time

LAUNCH = """
import sys
from transducer_gn.training.distributed import launch
launch(2, "cpu", sys.argv[1], [sys.argv[2]], hang_timeout=float(sys.argv[3]))
"""
# The first time, rank 1 does not end for so many seconds; later it does.
RANK = """
import os, sys, time
from pathlib import Path
mark = Path(__file__).with_name("was-here")
if os.environ["RANK"] == "1":
    is_first_time = not mark.exists()
    mark.write_text("")
    if is_first_time:
        time.sleep(float(sys.argv[1]))
    with open(mark.with_name("ended"), "a") as file:
        file.write("x")
"""


def ended_after(folder, late, patience):
    """Launch ranks of which one is late; gives how often it came to its end, and what was said."""
    (folder / "rank.py").write_text(RANK)
    words = [sys.executable, "-c", LAUNCH, str(folder / "rank.py"), str(late), str(patience)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return len((folder / "ended").read_text()), result.stderr


def test_a_rank_that_hangs_after_the_others_have_ended(tmp_path):
    times, said = ended_after(tmp_path, late=100_000, patience=1)
    assert times == 1
    assert "has not ended within 1 s after another" in said and "all ranks start again" in said


def test_a_rank_that_is_merely_slow(tmp_path):
    times, said = ended_after(tmp_path, late=3, patience=100)
    assert times == 1
    assert "hangs" not in said


def test_a_launcher_that_is_asked_to_stop(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    words = [sys.executable, "-c", LAUNCH, str(tmp_path / "rank.py"), "100000", "1000"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "was-here").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert "asked to stop" in said and "Traceback" not in said
