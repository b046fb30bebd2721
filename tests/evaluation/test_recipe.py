"""Invariant: run.sh contains every experiment of the paper, and each of its commands is one that its script accepts."""

import shlex
import subprocess

import pytest
from scripts import RECIPE, REPOSITORY

from transducer_gn.config import Config, config_parser, read_config

RUNS = {
    "local", "local-continued", "alpha-0.8", "alpha-0.6", "alpha-0.3", "alpha-0.1", "alpha-0", "alpha-0.3-early",
    "alpha-0.3-n2", "alpha-0.3-n5", "alpha-0.3-unregularised", "lookahead", "finite-state-local",
    "finite-state-continued", "finite-state-global",
}  # fmt: skip


def commands(*arguments: str) -> list[list[str]]:
    """What run.sh would do."""
    result = subprocess.run(
        [RECIPE / "run.sh", "--dry-run", *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return [shlex.split(line)[1:] for line in result.stdout.splitlines() if line.startswith("python ")]


def value(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


def configurations(*arguments: str) -> dict[str, tuple[Config, list[str]]]:
    """The settings of each training, by name of the run."""
    parser = config_parser("test")
    for flag in ("--exp-dir", "--branch-from", "--world-size"):
        parser.add_argument(flag)
    trainings = [command for command in commands(*arguments) if command[0].endswith("train.py")]
    return {value(c, "--exp-dir").rsplit("/", 1)[1]: (read_config(parser, c[1:])[0], c) for c in trainings}


@pytest.fixture(scope="module")
def librispeech():
    return configurations("--corpus", "librispeech", "--world-size", "8")


def test_librispeech_is_the_papers_schedule(librispeech):
    assert librispeech.keys() == RUNS
    local, command = librispeech["local"]
    assert (local.normalisation.alpha, local.training.epochs, local.data.batches.max_duration) == (1, 40, 180)
    assert value(command, "--world-size") == "8" and "--branch-from" not in command
    for alpha in (0.8, 0.6, 0.3, 0.1, 0):
        config, command = librispeech[f"alpha-{alpha}"]
        normalisation = config.normalisation
        assert (normalisation.alpha, normalisation.alpha_per_epoch, normalisation.regulariser) == (alpha, 0.25, 0.01)
        assert (config.competitors.count, config.data.batches.max_duration, config.training.epochs) == (10, 40, 40)
        assert value(command, "--branch-from").endswith("local/epoch-10.pt")
        assert config.model == local.model


def test_the_other_experiments_differ_in_one_thing(librispeech):
    assert value(librispeech["alpha-0.3-early"][1], "--branch-from").endswith("local/epoch-3.pt")
    assert {name: librispeech[f"alpha-0.3-{name}"][0].competitors.count for name in ("n2", "n5")} == {"n2": 2, "n5": 5}
    free = librispeech["alpha-0.3-unregularised"][0].normalisation
    assert (free.alpha, free.regulariser) == (0.3, 0)
    assert not librispeech["lookahead"][0].model.encoder.causal
    continued = librispeech["local-continued"][0]
    assert continued.normalisation.alpha == 1 and continued.normalisation.regulariser == 0
    assert continued.data == librispeech["alpha-0.3"][0].data
    finite, command = librispeech["finite-state-global"]
    assert finite.normalisation.exact and finite.model == librispeech["finite-state-local"][0].model
    assert (finite.model.vocab_size, finite.model.predictor.kind) == (32, "finite-state")
    assert value(command, "--branch-from").endswith("finite-state-local/epoch-10.pt")
    continued, same = librispeech["finite-state-continued"]
    assert value(same, "--branch-from") == value(command, "--branch-from") and continued.data == finite.data
    assert (continued.normalisation.alpha, continued.normalisation.regulariser) == (1, 0)


def test_the_same_script_at_mini_size():
    mini = configurations(
        "--corpus", "mini", "--epochs", "6", "--branch-epoch", "4", "--train-flags", "--training.seed 3"
    )
    assert mini.keys() == RUNS - {"alpha-0.3-n5"} | {"alpha-0.3-n10", "lookahead-continued"}
    assert mini["local"][0].training.epochs == 4 and mini["alpha-0.3"][0].training.epochs == 6
    assert mini["finite-state-global"][0].model.encoder == mini["local"][0].model.encoder
    assert {config.training.seed for config, _ in mini.values()} == {3}
    lookahead, command = mini["lookahead-continued"]
    assert not lookahead.model.encoder.causal and value(command, "--branch-from").endswith("lookahead/epoch-4.pt")
    assert lookahead.data == mini["local-continued"][0].data


@pytest.mark.parametrize("corpus", ["mini", "an4", "mini-librispeech"])
def test_baselines_of_small_corpora_go_on_as_they_were(corpus):
    runs = configurations("--corpus", corpus, "--epochs", "6", "--branch-epoch", "4", "--stop-stage", "3")
    before, after = runs["local"][0].normalisation, runs["local-continued"][0].normalisation
    assert before.regulariser == after.regulariser > 0 and after.alpha == 1
    assert runs["alpha-0.3"][0].normalisation.regulariser == before.regulariser


def test_a_selection_of_runs_and_stages():
    chosen = commands(
        "--corpus", "mini", "--only", "local,alpha-0.3", "--stage", "1", "--sets", "test-mini", "--beam", "8"
    )
    assert [command[0].rsplit("/", 1)[1] for command in chosen] == [
        "train.py", "train.py", "decode.py", "decode.py", "compute_latency.py", "compute_latency.py", "report.py",
    ]  # fmt: skip
    assert all(value(command, "--sets") == "[test-mini]" for command in chosen[2:6])
    assert [command[0].rsplit("/", 1)[1] for command in commands("--stage", "10")] == ["report.py"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wrong", "1"], "unknown option --wrong"),
        (["--stage"], "--stage needs a value"),
        (["--epochs", "many"], "--epochs must be a whole number, not 'many'"),
        (["--branch-epoch", "50"], "--branch-epoch must be at most"),
        (["--conf", "nowhere.yaml"], "there are no settings nowhere.yaml"),
    ],
)
def test_bad_options_are_named(arguments, message):
    result = subprocess.run([RECIPE / "run.sh", "--dry-run", *arguments], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and message in result.stderr


def test_settings_of_branches_change_nothing_of_the_model():
    for path in (REPOSITORY / "conf").glob("*-global.yaml"):
        assert "model:" not in path.read_text()
