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
TWO = ("--world-size", "2", "--device", "cpu")
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
    finish(start(toy, folder, *TWO))
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
    process = start(toy, folder, *TWO)
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
    agents = [start(toy, folder, "--device", "cpu", launcher=launcher) for _ in range(2)]
    for agent in agents:
        finish(agent)
    assert_same_end(folder, together)


def test_bad_settings_end_with_a_sentence(toy, tmp_path):
    process = start(toy, tmp_path / "exp", "--normalisation.exact", "true")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and "normalisation.exact" in errors and "Traceback" not in errors
    assert not (tmp_path / "exp").exists()


def test_what_the_user_must_see_to_is_said_once_and_not_tried_again(toy, tmp_path):
    process = start(toy, tmp_path / "exp", *TWO, "--branch-from", str(tmp_path / "nothing.pt"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2 and "Traceback" not in errors and "start again" not in errors
    assert errors.count("there is no checkpoint") == 1


def test_several_processes_compute_on_processors_only_when_asked_to(toy, tmp_path):
    environment = ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": ""}
    arguments = [sys.executable, *command(toy, tmp_path / "exp", "--world-size", "8")]
    result = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and not (tmp_path / "exp").exists()
    assert result.stderr.count("\n") == 1 and "8 processes" in result.stderr and "--device cpu" in result.stderr


@pytest.mark.parametrize("flags", [(), TWO], ids=["one process", "two processes"])
def test_a_check_says_what_would_be_trained_and_writes_nothing(flags, toy, tmp_path):
    arguments = [sys.executable, *command(toy, tmp_path / "exp", "--check", *flags)]
    result = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    found = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    names = "device precision recursion parameters tokens noise start batches memory time time disk"
    assert [name for name, _ in found] == names.split()
    values = dict(found)
    assert values["device"].startswith("2 processes" if flags else "1 process ")
    # Seven batches of all utterances; of two ranks, each has half of them, rounded up.
    assert values["batches"].startswith("4 " if flags else "7 ") and f"{toy.vocab_size} pieces" in values["tokens"]
    assert "3 competitors of 2 times" in values["memory"] and not (tmp_path / "exp").exists()
