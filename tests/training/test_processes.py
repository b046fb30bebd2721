"""Invariant: real processes that are stopped, killed or divided among machines end with the parameters of a run that
nothing happened to.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from toy_data import parameters_of, toy_settings

SCRIPT = Path(__file__).parents[2] / "egs" / "librispeech" / "ASR" / "train.py"
SETTINGS = {
    "training.epochs": 4,
    "training.save_interval": 2,
    "training.keep_last": 100,
    "training.memory_scan": "false",
    "normalisation.alpha": 0.3,
    "normalisation.regulariser": 0.05,
    "normalisation.regulariser_ramp": 0.5,
    "normalisation.alpha_delay": 0.5,
    "normalisation.alpha_per_epoch": 0.5,
}
LAST = f"epoch-{SETTINGS['training.epochs']}.pt"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}


def command(toy, folder, *flags):
    return [str(SCRIPT), *toy_settings(toy, **SETTINGS), "--exp-dir", str(folder), *flags]


def start(toy, folder, *flags, launcher=()):
    arguments = [sys.executable, *launcher, *command(toy, folder, *flags)]
    return subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def finish(process):
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors[-3000:]
    return errors


def wait_for(path, process):
    """Until a file is there."""
    for _ in range(2400):
        if path.exists():
            return
        assert process.poll() is None, process.stderr.read()[-3000:]
        time.sleep(0.05)
    raise TimeoutError(path)


def children(pid):
    """Processes that a process has started, and theirs."""
    found = [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [x for child in found for x in children(child)]


def assert_same_end(folder, other):
    for name, value in parameters_of(folder / LAST).items():
        assert torch.equal(value, parameters_of(other / LAST)[name]), name


@pytest.fixture(scope="module")
def alone(toy, tmp_path_factory):
    """An undisturbed run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "exp"
    finish(start(toy, folder))
    return folder


@pytest.fixture(scope="module")
def together(toy, tmp_path_factory):
    """An undisturbed run of two processes."""
    folder = tmp_path_factory.mktemp("together") / "exp"
    finish(start(toy, folder, "--world-size", "2"))
    return folder


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_process_resumes(number, toy, alone, tmp_path):
    folder = tmp_path / "exp"
    process = start(toy, folder)
    wait_for(folder / "checkpoint-6.pt", process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert not (folder / LAST).exists()
    if number == signal.SIGTERM:
        assert process.returncode == 0 and "the same command goes on from there" in errors
    else:
        assert process.returncode == -signal.SIGKILL
    assert "resuming from" in finish(start(toy, folder))
    assert_same_end(folder, alone)


def test_a_stop_of_the_whole_job_also_saves(toy, alone, tmp_path):
    """As schedulers do it: processes that load batches get the signal, too."""
    folder = tmp_path / "exp"
    process = start(toy, folder, "--data.batches.num_workers", "1")
    wait_for(folder / "checkpoint-6.pt", process)
    for pid in (*children(process.pid), process.pid):
        os.kill(pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "the same command goes on from there" in errors
    assert not (folder / LAST).exists()
    finish(start(toy, folder))
    assert_same_end(folder, alone)


def test_killed_rank_restarts_all_from_the_last_checkpoint(toy, together, tmp_path):
    folder = tmp_path / "exp"
    process = start(toy, folder, "--world-size", "2")
    wait_for(folder / "checkpoint-4.pt", process)
    ranks = [pid for pid in children(process.pid) if "train.py" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    assert "resuming from" in finish(process)
    assert_same_end(folder, together)


def test_two_agents_of_one_process_each_equal_one_agent_of_two(toy, together, tmp_path):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        endpoint = f"localhost:{probe.getsockname()[1]}"
    launcher = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d"]
    launcher += [f"--rdzv-endpoint={endpoint}", "--rdzv-id=test"]
    folder = tmp_path / "exp"
    agents = [start(toy, folder, launcher=launcher) for _ in range(2)]
    for agent in agents:
        finish(agent)
    assert_same_end(folder, together)


def test_bad_settings_end_with_a_sentence(toy, tmp_path):
    process = start(toy, tmp_path / "exp", "--normalisation.exact", "true")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "normalisation.exact" in errors and "Traceback" not in errors
    assert not (tmp_path / "exp").exists()
