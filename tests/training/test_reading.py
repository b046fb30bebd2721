"""Invariant: reading trains the joiner without a frame as a language model, and nothing else."""

import math

import pytest
import torch
from toy_data import PAIRS, parameters_of, toy_settings

from transducer_gn.commands.read_text import main as read_text
from transducer_gn.common.errors import UserError
from transducer_gn.config import config_parser, read_config
from transducer_gn.model.transducer import build_model
from transducer_gn.recognition.checkpoint import load_checkpoint
from transducer_gn.training import first_reading
from transducer_gn.training.clock import Clock
from transducer_gn.training.distributed import World
from transducer_gn.training.reading import cross_entropy
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.start import start_run

SENTENCES = [f"{first} AND {settled}" for pair in PAIRS for first, settled in (pair[:2], pair[2:])]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(SENTENCES) + "\n")
    return path


def config_of(toy, **changes):
    return read_config(config_parser("test"), toy_settings(toy, **changes))[0]


def test_the_loss_is_that_of_a_language_model_token_by_token(toy):
    torch.manual_seed(1)
    model = build_model(config_of(toy).model).double()
    tokens = torch.tensor([[5, 3, 7, 4], [6, 6, 0, 0], [9, 0, 0, 0]])
    expected = 0.0
    model.requires_grad_(False)
    for row in ([5, 3, 7, 4], [6, 6], [9]):
        state, token = model.predictor.initial_state(1), 0
        for following in row:
            output, state = model.predictor.step(torch.tensor([token]), state)
            hidden = torch.tanh(model.joiner.project_predictor(output))[0]
            logits = model.joiner.output_weight @ hidden + model.joiner.output_bias
            expected -= float(logits[following] - logits[1:].logsumexp(0))
            token = following
    assert float(cross_entropy(model, tokens)) == pytest.approx(expected / 7, rel=1e-12)


def test_no_gradient_reaches_the_encoder_or_the_blank(toy):
    model = build_model(config_of(toy).model)
    cross_entropy(model, torch.tensor([[5, 3, 7]])).backward()
    touched = {name.split(".")[0] for name, value in model.named_parameters() if value.grad is not None}
    assert touched == {"predictor", "joiner"}
    assert model.joiner.encoder_projection.weight.value.grad is None
    gradient = model.joiner.output.weight.value.grad
    assert gradient[0].abs().max() == 0 < gradient[1].abs().max()


def test_the_objective_grows_by_what_was_read(toy, text, tmp_path):
    weights = {}
    for weight in (0.0, 0.5, 1.0):
        config = config_of(toy, **{"reading.text": text, "reading.weight": weight, "reading.tokens": 40})
        state = start_run(config, tmp_path / str(weight), World(), None, False)
        state.planner.begin(iter(state.batches), 0, 0)
        plan = state.planner.next_plans(1, 1.0)[0]
        objective = state.learner.training_pass(plan, SchedulePoint(1.0, 0.0), 1.0, Clock(torch.device("cpu")))
        weights[weight] = (
            float(objective.loss.detach()),
            objective.metrics()["reading"],
            int(plan.batch.token_lengths.sum()),
        )
    alone, entropy, tokens = weights[0.0]
    for weight in (0.5, 1.0):
        assert weights[weight][0] == pytest.approx(alone + weight * tokens * entropy, rel=1e-5)
    assert entropy == pytest.approx(math.log(toy.vocab_size), rel=0.3)


def test_a_predictor_that_has_read_expects_what_it_read(toy, text, tmp_path):
    folder = tmp_path / "read"
    arguments = [*toy_settings(toy, **{"reading.text": text, "reading.tokens": 60}), "--exp_dir", str(folder)]
    read_text([*arguments, "--updates", "120"])
    checkpoint = load_checkpoint(folder / "epoch-0.pt")
    model = build_model(checkpoint.config.model)
    model.load_state_dict(checkpoint.model)
    tokenizer = start_run(config_of(toy), tmp_path / "other", World(), None, False).tokenizer

    def entropy(sentence):
        tokens = tokenizer.encode(sentence)
        return len(tokens) * cross_entropy(model, torch.tensor([tokens])).item()

    assert entropy("MAIL AND ORDER") < entropy("MAIL AND POLISH") - 2
    assert entropy("NAIL AND POLISH") < entropy("NAIL AND ORDER") - 2


def test_reading_goes_on_where_it_was_stopped(toy, text, tmp_path, monkeypatch):
    def arguments(folder):
        changes = {"reading.text": text, "reading.tokens": 60, "training.save_interval": 5, "training.log_interval": 3}
        return [*toy_settings(toy, **changes), "--exp_dir", str(tmp_path / folder), "--updates", "12"]

    read_text(arguments("whole"))
    update, calls = first_reading._update, []

    def fails_once(*given):
        calls.append(None)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return update(*given)

    monkeypatch.setattr(first_reading, "_update", fails_once)
    with pytest.raises(KeyboardInterrupt):
        read_text(arguments("stopped"))
    read_text(arguments("stopped"))
    assert len(calls) == 8 + 7, "it begins after the checkpoint of update 5"
    assert [path.name for path in (tmp_path / "stopped").glob("*.pt")] == ["epoch-0.pt"]
    for name, value in parameters_of(tmp_path / "whole" / "epoch-0.pt").items():
        assert torch.equal(value, parameters_of(tmp_path / "stopped" / "epoch-0.pt")[name]), name
    with pytest.raises(UserError, match=r"epoch-0.pt was made with other settings: training.seed"):
        read_text([*arguments("whole"), "--training.seed", "7"])


def test_half_a_reading_goes_on_as_it_was_begun_and_is_no_training(toy, text, tmp_path, monkeypatch):
    settings = {"reading.text": text, "reading.tokens": 60, "training.save_interval": 5}
    arguments = [*toy_settings(toy, **settings), "--exp_dir", str(tmp_path), "--updates", "12"]
    with monkeypatch.context() as patch:
        patch.setattr(first_reading, "epoch_path", lambda *_: tmp_path / "missing" / "epoch-0.pt")
        with pytest.raises(OSError, match="missing"):
            read_text(arguments)
    with pytest.raises(UserError, match=r"--updates was 12 when .*checkpoint-10.pt was made"):
        read_text([*arguments, "--updates", "13"])
    with pytest.raises(UserError, match=r"checkpoint-10.pt was made with other settings: training.seed"):
        read_text([*arguments, "--training.seed", "7"])
    with pytest.raises(UserError, match="cannot resume"):
        start_run(config_of(toy, **settings), tmp_path, World(), None, False)
    read_text(arguments)
    assert load_checkpoint(tmp_path / "epoch-0.pt").progress.batches_in_epoch == 0, "a run counts its own"


def test_parameters_that_are_not_finite_are_not_kept(toy, text, tmp_path):
    settings = {"reading.text": text, "reading.tokens": 60, "optimiser.initial_lr": 1e30}
    with pytest.raises(UserError, match="parameters .* are not finite after update"):
        read_text([*toy_settings(toy, **settings), "--exp_dir", str(tmp_path / "exp"), "--updates", "12"])
    assert not list((tmp_path / "exp").glob("*.pt"))


def test_a_run_begins_with_the_parts_of_others(toy, train, local_run, tmp_path):
    read = tmp_path / "read"
    train(read, **{"training.epochs": 1, "training.seed": 5})
    settings = {"training.encoder_from": local_run / "epoch-1.pt", "training.predictor_from": read / "epoch-1.pt"}
    state = start_run(config_of(toy, **settings), tmp_path / "exp", World(), None, False)
    model = state.learner.model.state_dict()
    encoder, predictor = parameters_of(local_run / "epoch-1.pt"), parameters_of(read / "epoch-1.pt")
    for name, value in model.items():
        if value.dtype.is_floating_point and name in encoder:
            source = encoder if name.startswith("encoder.") else predictor
            assert torch.equal(value, source[name]), name
    for name, value in state.learner.average.parameters.items():
        assert torch.equal(value, model[name]), name
    assert state.progress.step == 0


def test_parts_of_other_sizes_are_refused(toy, local_run, tmp_path):
    settings = {"training.predictor_from": local_run / "epoch-1.pt", "model.predictor.dim": 24}
    with pytest.raises(UserError, match=r"training.predictor_from .*epoch-1.pt is of another size than this model"):
        start_run(config_of(toy, **settings), tmp_path / "exp", World(), None, False)


def test_a_branch_takes_no_parts_of_others(toy, local_run, tmp_path):
    parent = local_run / "epoch-1.pt"
    config = config_of(toy, **{"training.encoder_from": parent})
    with pytest.raises(UserError, match="--branch-from takes over a whole system; leave out training.encoder_from"):
        start_run(config, tmp_path / "exp", World(), parent, False)
