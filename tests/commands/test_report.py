"""Invariant: which run the report takes for what is what the experiments' file says, and without one what it sees."""

from pathlib import Path

import pytest

from transducer_gn.config import Config, EncoderConfig, ModelConfig, NormalisationConfig, StreamingConfig
from transducer_gn.config.experiments import ROLES, read_experiments
from transducer_gn.reporting.runs import Run, choose_baseline, choose_challenger, choose_lookahead

PAPER = read_experiments(Path(__file__).parents[2] / "conf" / "experiments" / "paper.yaml")
WHOLE = ModelConfig(
    encoder=EncoderConfig(causal=False), streaming=StreamingConfig(dynamic_chunks=False, chunk=None, left_context=None)
)


def trained(name: str, alpha: float, step: int, wer: float, model: ModelConfig | None = None) -> Run:
    config = Config(model=model or ModelConfig(), normalisation=NormalisationConfig(alpha=alpha))
    best = {"epoch": 1, "wer": wer, "last_epoch": 40}
    return Run(name, Path(name), config, step=step, best=best, results={"test": None})


@pytest.fixture
def runs() -> list[Run]:
    """As the paper's schedule leaves them, and two runs by hand that would be chosen by their looks."""
    return [
        trained("alpha-0.1", 0.1, 50, 5.0),
        trained("alpha-0.3-n20", 0.3, 50, 4.0),
        trained("by-hand-global", 0.5, 50, 1.0),
        trained("by-hand-local", 1, 999, 9.0),
        trained("local", 1, 90, 8.0),
        trained("local-continued", 1, 60, 7.0),
        trained("lookahead", 1, 70, 3.0, WHOLE),
        trained("lookahead-by-hand", 1, 990, 3.0, WHOLE),
    ]


def roles(runs: list[Run]) -> dict[str, list[str]]:
    return {role: PAPER.in_role(role, [run.name for run in runs]) for role in ROLES}


def test_roles_come_from_the_file(runs):
    known = roles(runs)
    assert choose_baseline(runs, None, known["baseline"]).name == "local-continued"
    assert choose_challenger(runs, None, known["challenger"]).name == "alpha-0.3-n20"
    assert choose_lookahead(runs, "test", known["lookahead"]).name == "lookahead"
    assert choose_lookahead(runs, "dev", known["lookahead"]) is None
    assert choose_baseline(runs, "by-hand-local", known["baseline"]).name == "by-hand-local"
    before_the_branch = [run for run in runs if run.name != "local-continued"]
    assert choose_baseline(before_the_branch, None, roles(before_the_branch)["baseline"]).name == "local"


def test_without_a_file_or_its_runs_by_what_is_seen(runs):
    by_hand = [run for run in runs if "by-hand" in run.name]
    for seen in (by_hand, runs):
        known = roles(seen) if seen is by_hand else dict.fromkeys(ROLES, ())
        assert choose_baseline(seen, None, known["baseline"]).name == "by-hand-local"
        assert choose_challenger(seen, None, known["challenger"]).name == "by-hand-global"
        assert choose_lookahead(seen, "test", known["lookahead"]).name == "lookahead-by-hand"
