"""Invariant: the runner contains every experiment of the paper, each of its commands is one that its script accepts,
and what a user gets wrong ends in one sentence.
"""

import importlib
import os
import shlex
import subprocess
from dataclasses import replace

import pytest
from scripts import RECIPE, REPOSITORY
from small_corpora import write_chapter

from transducer_gn.commands import run
from transducer_gn.common.errors import UserError
from transducer_gn.config import Config, FrontEndConfig, ModelConfig, StreamingConfig, read_config

PAPERS_BATCHES = REPOSITORY / "conf" / "librispeech-global-40s.yaml"
RUNS = {
    "local", "local-continued", "alpha-0.8", "alpha-0.6", "alpha-0.3", "alpha-0.1", "alpha-0", "alpha-0.3-early",
    "alpha-0.3-n2", "alpha-0.3-n5", "alpha-0.3-unregularised", "lookahead", "finite-state-local",
    "finite-state-continued", "finite-state-global",
}  # fmt: skip


@pytest.fixture
def commands(capsys):
    """What the runner would do: the commands of its scripts."""

    def show(*arguments: str) -> list[list[str]]:
        run.main(["--dry-run", *arguments])
        lines = capsys.readouterr().out.splitlines()
        return [shlex.split(line)[1:] for line in lines if line.startswith("python ")]

    return show


@pytest.fixture
def configurations(commands):
    """The settings of each training, by name of the run, and its command."""

    def read(*arguments: str) -> dict[str, tuple[Config, list[str]]]:
        parser = importlib.import_module("transducer_gn.commands.train").parser()
        trainings = [command for command in commands(*arguments) if command[0].endswith("train.py")]
        return {value(c, "--exp-dir").rsplit("/", 1)[1]: (read_config(parser, c[1:])[0], c) for c in trainings}

    return read


def value(command: list[str], flag: str) -> str:
    return command[command.index(flag) + 1]


@pytest.fixture
def librispeech(configurations):
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
        assert (config.competitors.count, config.data.batches.max_duration, config.training.epochs) == (10, 180, 40)
        assert value(command, "--branch-from").endswith("local/epoch-10.pt")
        assert config.model == local.model


def test_librispeech_follows_icefall_where_the_paper_does(librispeech, capsys):
    for name, (config, _) in librispeech.items():
        assert config.data.batches.noise.enabled and config.model.streaming.tail_padding == 64, name
        chosen = config.training.validation_sets, config.training.validation_utterances
        assert chosen == (["dev-clean"], "all") and config.training.keep_epochs == 3
    # What others branch off from is kept.
    assert librispeech["local"][0].training.keep_always == (3, 10)
    assert librispeech["finite-state-local"][0].training.keep_always == (10,)
    assert librispeech["alpha-0.3"][0].training.keep_always == ()
    run.main(["--dry-run", "--corpus", "librispeech", "--stop-stage", "0"])
    assert capsys.readouterr().out.rstrip().endswith("--musan")


def test_other_corpora_have_the_papers_system_without_what_is_librispeechs(configurations, librispeech, capsys):
    own, _ = configurations("--corpus", "some/corpus")["alpha-0.3"]
    assert own.model.encoder == librispeech["alpha-0.3"][0].model.encoder and own.normalisation.alpha == 0.3
    assert not own.data.batches.noise.enabled and own.training.validation_sets is None
    run.main(["--dry-run", "--corpus", "some/corpus", "--stop-stage", "0"])
    assert "--musan" not in capsys.readouterr().out


def test_the_papers_batches_are_a_setting_of_their_own(librispeech, configurations):
    papers = configurations("--corpus", "librispeech", "--global-conf", str(PAPERS_BATCHES))
    for name, (config, _) in papers.items():
        ours = librispeech[name][0]
        shorter = replace(ours.data.batches, max_duration=40 if "--branch-from" in librispeech[name][1] else 180)
        assert config == replace(ours, data=replace(ours.data, batches=shorter)), name


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
    assert finite.model.encoder.attention_dim == 512
    assert value(command, "--branch-from").endswith("finite-state-local/epoch-10.pt")
    continued, same = librispeech["finite-state-continued"]
    assert value(same, "--branch-from") == value(command, "--branch-from") and continued.data == finite.data
    assert (continued.normalisation.alpha, continued.normalisation.regulariser) == (1, 0)


def test_the_same_experiments_at_mini_size(configurations):
    mini = configurations(
        "--corpus", "mini", "--epochs", "6", "--branch-epoch", "4", "--train-flags", "--training.seed 3"
    )
    assert mini.keys() == RUNS - {"alpha-0.3-n5"} | {"alpha-0.3-n10", "lookahead-continued"}
    assert mini["local"][0].training.epochs == 4 and mini["alpha-0.3"][0].training.epochs == 6
    finite = mini["finite-state-global"][0]
    assert finite.model.encoder == mini["local"][0].model.encoder
    assert (finite.model.vocab_size, finite.model.predictor.kind, finite.model.joiner.blank_prior) == (
        32,
        "finite-state",
        0.6,
    )
    assert finite.normalisation.exact and finite.normalisation.exact_tokens_per_frame == 2
    assert {config.training.seed for config, _ in mini.values()} == {3}
    lookahead, command = mini["lookahead-continued"]
    assert not lookahead.model.encoder.causal and value(command, "--branch-from").endswith("lookahead/epoch-4.pt")
    assert lookahead.data == mini["local-continued"][0].data


@pytest.mark.parametrize("corpus", ["mini", "an4", "mini-librispeech"])
def test_baselines_of_small_corpora_go_on_as_they_were(configurations, corpus):
    runs = configurations("--corpus", corpus, "--epochs", "6", "--branch-epoch", "4", "--stop-stage", "3")
    before, after = runs["local"][0].normalisation, runs["local-continued"][0].normalisation
    assert before.regulariser == after.regulariser > 0 and after.alpha == 1
    assert runs["alpha-0.3"][0].normalisation.regulariser == before.regulariser


def test_a_selection_of_runs_and_stages(commands):
    chosen = commands(
        "--corpus", "mini", "--only", "local,alpha-0.3", "--stage", "1", "--sets", "test-mini", "--beam", "8"
    )
    assert [command[0].rsplit("/", 1)[1] for command in chosen] == [
        "train.py", "train.py", "decode.py", "decode.py", "compute_latency.py", "compute_latency.py", "report.py",
    ]  # fmt: skip
    assert all(value(command, "--sets") == "[test-mini]" for command in chosen[2:6])
    assert [command[0].rsplit("/", 1)[1] for command in commands("--stage", "10")] == ["report.py"]


def test_every_command_parses_with_its_own_parser(commands):
    shown = commands("--corpus", "mini", "--sets", "a,b", "--latency-utterances", "3", "--baseline", "x")
    assert {command[0].rsplit("/", 1)[1] for command in shown} == {
        "train.py", "decode.py", "compute_latency.py", "report.py",
    }  # fmt: skip
    for script, *flags in shown:
        name = script.rsplit("/", 1)[1].removesuffix(".py")
        parsed = importlib.import_module(f"transducer_gn.commands.{name}").parser().parse_args(flags)
        assert name == "train" or name == "report" or parsed.sets == ["a", "b"]


def test_chunks_of_several_sizes_are_measured_of_every_run(commands):
    shown = commands("--corpus", "mini", "--only", "local,alpha-0.3", "--chunks", "4,8", "--sets", "test-mini")
    over = [command for command in shown if command[0].endswith("over_chunks.py")]
    assert [value(command, "--exp-dir").rsplit("/", 1)[1] for command in over] == ["local", "alpha-0.3"]
    for command in over:
        flags = importlib.import_module("transducer_gn.commands.over_chunks").parser().parse_args(command[1:])
        assert flags.chunks == [4, 8] and flags.sets == ["test-mini"]


def test_sizes_of_chunks_are_refused_only_where_they_cannot_be(commands, tmp_path):
    flags = ["--corpus", "mini", "--chunks", "12", "--only"]
    with pytest.raises(UserError, match="12 does not divide the left context of 64 frames that alpha-0 has"):
        commands(*flags, "lookahead,alpha-0")
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"base: {REPOSITORY}/conf/experiments/mini.yaml\n"
        "runs:\n  short: {stage: local, settings: {model.streaming.left_context: 48}}\n"
    )
    for further in (
        ["lookahead"],  # which has no chunks
        ["short", "--experiments", str(file)],
        ["alpha-0", "--train-flags", "--model.streaming.left_context 48"],
    ):
        assert any(command[0].endswith("over_chunks.py") for command in commands(*flags, *further))
    whole = ModelConfig(front_end=FrontEndConfig("moonshine-tiny", chunk=None), streaming=StreamingConfig(chunk=None))
    assert not whole.has_chunks
    run.RecipeConfig(chunks="12").check_chunks(whole, "whole")


def test_chunks_are_measured_of_the_first_seed_alone(commands):
    shown = commands("--corpus", "mini", "--only", "local", "--chunks", "4", "--seeds", "1,2", "--exp-root", "here")
    over = [command for command in shown if command[0].endswith("over_chunks.py")]
    assert [value(command, "--exp-dir") for command in over] == ["here/local"]


def test_averages_are_not_asked_of_every_epoch(commands):
    flags = ["--corpus", "mini", "--only", "local,lookahead", "--avg", "1", "--every-epoch", "true", "--chunks", "8"]
    for script, *words in commands(*flags):
        name = script.rsplit("/", 1)[1].removesuffix(".py")
        if name not in ("train", "report"):
            parsed = importlib.import_module(f"transducer_gn.commands.{name}").parser().parse_args(words)
            assert name == "over_epochs" or parsed.avg == 1


def test_other_seeds_and_every_epoch(commands):
    flags = ["--corpus", "mini-near", "--experiments", "near", "--seeds", "1,2", "--every-epoch", "true"]
    shown = commands(*flags, "--exp-root", "here", "--latency-utterances", "3", "--stop-stage", "5")
    names = [command[0].rsplit("/", 1)[1] for command in shown]
    kinds = ["train.py"] * 3 + ["decode.py"] * 3 + ["compute_latency.py"] * 3 + ["over_epochs.py"] * 3
    assert names == [*kinds * 3, "report.py"]
    importlib.import_module("transducer_gn.commands.over_epochs").parser().parse_args(shown[9][1:])
    trainings = [command for command in shown if command[0].endswith("train.py")]
    roots = [value(command, "--exp-dir").rsplit("/", 1)[0] for command in trainings]
    assert roots == 3 * ["here"] + 3 * ["here-seed1"] + 3 * ["here-seed2"]
    assert value(trainings[-1], "--training.seed") == value(trainings[-1], "--data.batches.seed") == "2"
    assert "--training.seed" not in trainings[0]
    assert value(trainings[-1], "--branch-from") == "here-seed2/local/epoch-3.pt"
    assert value(shown[-1], "--seeds") == "[here-seed1,here-seed2]" and value(shown[-1], "--exp-root") == "here"


def test_a_small_chunk_is_all_that_training_ever_sees(configurations):
    for conf, chunk in (([], 4), (["--conf", str(REPOSITORY / "conf" / "mini-near-320.yaml")], 8)):
        runs = configurations("--corpus", "mini-near", "--experiments", "near", "--stop-stage", "2", *conf)
        assert list(runs) == ["local", "local-continued", "alpha-0.3"]
        for config, _ in runs.values():
            streaming = config.model.streaming
            assert (streaming.chunk, streaming.max_chunk, streaming.full_context_share) == (chunk, chunk, 0)


def test_expected_errors_branch_off_from_local_and_from_global(configurations):
    runs = configurations(
        "--corpus", "an4", "--experiments", "mwer", "--branch-epoch", "6", "--early-epoch", "8", "--epochs", "9"
    )
    weights = {name: config.mwer.weight for name, (config, _) in runs.items()}
    assert [name for name, weight in weights.items() if weight > 0] == ["local-mwer", "both", "alpha-0.3-mwer"]
    local, command = runs["local-mwer"]
    assert local.normalisation.alpha == 1 and local.mwer.scores == "local"
    assert value(command, "--branch-from").endswith("local/epoch-6.pt")
    further, command = runs["alpha-0.3-mwer"]
    assert (further.normalisation.alpha_at(0.0), further.mwer.scores) == (0.3, "raw")
    assert value(command, "--branch-from").endswith("alpha-0.3/epoch-8.pt")
    assert {config.data.batches.max_duration for name, (config, _) in runs.items() if name != "local"} == {30}


def test_a_run_that_is_done_is_not_trained_again(commands, tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "epoch-4.pt").touch()
    flags = ["--corpus", "mini", "--branch-epoch", "4", "--only", "local,alpha-0", "--stage", "1", "--stop-stage", "7"]
    shown = commands(*flags, "--exp-root", str(tmp_path))
    assert [value(command, "--exp-dir") for command in shown] == [str(tmp_path / "alpha-0")]


def test_a_new_experiment_is_a_few_lines(configurations, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"base: {REPOSITORY}/conf/experiments/mini.yaml\n"
        "runs:\n  alpha-0.5: {stage: alpha, role: challenger, parent: local, settings: {normalisation.alpha: 0.5}}\n"
    )
    runs = configurations("--corpus", "mini", "--experiments", str(file), "--stop-stage", "3")
    assert list(runs)[-1] == "alpha-0.5" and runs["alpha-0.5"][0].normalisation.alpha == 0.5


@pytest.mark.parametrize(("jobs", "first", "later"), [("1", None, None), ("2", 8, 4), ("3", 8, 3)])
def test_cores_are_shared_among_jobs(monkeypatch, jobs, first, later):
    monkeypatch.setattr("transducer_gn.commands.jobs.default_jobs", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    recipe = run.Recipe.of(run.RecipeConfig(corpus="mini", jobs=int(jobs)))
    by_name = {planned.name: recipe.train_job(planned) for planned in recipe.wanted()}
    assert by_name["local"].alone and by_name["local"].threads == first
    assert not by_name["alpha-0"].alone and by_name["alpha-0"].threads == later
    assert recipe.decode_job("local").threads == recipe.report_job().threads == later
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert recipe.decode_job("local").threads == (None if jobs == "1" else 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wrong", "1"], "unknown option --wrong"),
        (["--stage"], "--stage needs a value"),
        (["--epochs", "many"], "--epochs must be a whole number or null, not 'many'"),
        (["--jobs", "0"], "--jobs: must be at least 1, not 0"),
        (["--seeds", "1,x"], "--seeds: must be whole numbers with commas between them, not '1,x'"),
        (["--chunks", "4,0"], "--chunks: must be above 0"),
        (["--corpus", "mini", "--chunks", "12"], "--chunks: 12 does not divide the left context of 64 frames"),
        (["--counts", "2,x"], "--counts: must be whole numbers with commas between them, not '2,x'"),
        (["--branch-epoch", "50"], "--branch-epoch must be at most"),
        (["--early-epoch", "50"], "alpha-0.3-early branches off after epoch 50 of local, which has 40"),
        (["--only", "local,alpha-7"], "--only: there is no run 'alpha-7'"),
        (["--conf", "nowhere.yaml"], "there are no settings nowhere.yaml"),
        (["--experiments", "nowhere.yaml"], "there are no experiments nowhere.yaml"),
    ],
)
def test_bad_options_are_named(arguments, message):
    with pytest.raises(UserError) as caught:
        run.main(["--dry-run", *arguments])
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_run_sh_is_the_same_command(environment):
    result = subprocess.run(
        [RECIPE / "run.sh", "--dry-run", "--stage", "10", "--exp-root", "here"],
        capture_output=True, text=True, timeout=60, env=os.environ | environment,
    )  # fmt: skip
    assert result.returncode == 0 and "report.py --exp-root here" in result.stdout
    result = subprocess.run(
        [REPOSITORY / "run.sh", "--wrong", "1"],
        capture_output=True, text=True, timeout=60, env=os.environ | environment,
    )  # fmt: skip
    assert result.returncode == 2 and "unknown option --wrong" in result.stderr


def test_settings_of_branches_change_nothing_of_the_model():
    for path in (REPOSITORY / "conf").glob("*-global.yaml"):
        assert "model:" not in path.read_text()


def test_own_recordings_on_a_pretrained_front_end(configurations, capsys, tmp_path):
    write_chapter(tmp_path / "own" / "train" / "1" / "7", ["1-7-0001", "1-7-0002"])
    flags = ["--corpus", str(tmp_path / "own"), "--front-end", "moonshine-tiny", "--front-end-file", "F", "--dev", "x"]
    with pytest.raises(UserError, match="--dev names the part 'x', but the corpus has only train"):
        run.main(["--dry-run", *flags])
    flags = flags[:-2]
    found = configurations(*flags, "--only", "local,local-continued,alpha-0.3")
    assert {name: (config.normalisation.alpha, config.training.epochs) for name, (config, _) in found.items()} == {
        "local": (1, 8), "local-continued": (1, 10), "alpha-0.3": (0.3, 10)
    }  # fmt: skip
    small = found["alpha-0.3"][0]
    assert (small.model.front_end.kind, small.model.front_end.right) == ("moonshine-tiny", 320)
    assert small.data.folder.endswith("data/own-moonshine-tiny")
    run.main(["--dry-run", *flags, "--stop-stage", "0", "--train", "train"])
    prepare = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert value(prepare, "--vocab-sizes") == str(small.model.vocab_size)
    assert value(prepare, "--conf").endswith("conf/moonshine-small.yaml")
    assert (value(prepare, "--front-end-file"), value(prepare, "--train")) == ("F", "train")


def test_much_text_has_the_larger_system(configurations, tmp_path):
    write_chapter(tmp_path / "own" / "train" / "1" / "7", ["1-7-0001"])
    transcript = tmp_path / "own" / "train" / "1" / "7" / "1-7.trans.txt"
    transcript.write_text(f"1-7-0001 {'WORD ' * 20000}\n")
    found = configurations("--corpus", str(tmp_path / "own"), "--front-end", "moonshine-tiny")
    config, _ = found["local"]
    assert (config.model.vocab_size, config.model.front_end.right, config.training.epochs) == (250, 0, 12)
    assert found["alpha-0.3"][0].model == config.model and found["alpha-0.3-n10"][0].competitors.count == 10


def test_a_front_ends_file_without_a_front_end_is_refused():
    with pytest.raises(UserError, match="--front-end-file: is the file of --front-end moonshine-tiny"):
        run.main(["--dry-run", "--corpus", "mini", "--front-end-file", "F"])


@pytest.mark.parametrize(("choice", "averaged"), [(["--avg", "2"], "2"), (["--last", "true"], "0")])
def test_last_epochs_are_used_where_they_are_averaged_or_asked_for(commands, choice, averaged):
    found = commands("--corpus", "mini", "--only", "local,alpha-0.3", "--branch-epoch", "3", "--epochs", "6", *choice)
    decodings = [command for command in found if command[0].endswith(("decode.py", "compute_latency.py"))]
    assert [(value(c, "--epoch"), value(c, "--avg")) for c in decodings] == [("3", averaged), ("6", averaged)] * 2
    assert not any("--epoch" in command for command in commands("--corpus", "mini"))
