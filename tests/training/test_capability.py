"""Invariant: on ambiguous utterances that later words settle, more local training leaves errors near chance, while a
branch towards global normalisation from the same checkpoint, with as many updates, removes them. Expected errors change
neither: what a locally normalised model cannot say it cannot be taught to by counting errors.

The words of a pair sound the same, so that a streaming model cannot know the first word when it hears it, and the words
in between are too many to wait for. See `toy_data`.
"""

from pathlib import Path

import pytest
import torch
import toy_data

from transducer_gn.config import config_parser, read_config
from transducer_gn.data.batches import Batches
from transducer_gn.data.prepared import PreparedData
from transducer_gn.model.chunk import evaluation_chunk
from transducer_gn.search.beam import beam_search
from transducer_gn.training.distributed import World
from transducer_gn.training.trainer import Trainer

EPOCHS, FURTHER = 10, 5
FOR_ERRORS = {"mwer.weight": 0.5, "mwer.scores": "interpolated"}
SETTINGS = {
    "model.encoder.dim": 64,
    "model.encoder.attention_dim": 64,
    "model.encoder.feedforward_dim": 128,
    "model.encoder.dropout": 0.0,
    "model.encoder.layer_drop": 0.0,
    "model.joiner.dim": 64,
    "data.batches.max_duration": 20,
    "optimiser.warmup_updates": 30,
    "optimiser.lr_updates": 300,
    "competitors.count": 5,
    "competitors.max_tokens_per_frame": 3,
    "training.memory_scan": "false",
}
GLOBAL = {
    "normalisation.alpha": 0.3,
    "normalisation.regulariser": 0.01,
    "normalisation.regulariser_ramp": 0.5,
    "normalisation.alpha_delay": 0.5,
    "normalisation.alpha_per_epoch": 0.5,
}


def errors(trainer):
    """Per cent of ambiguous first words that are wrong, and of ordinary words, on the test set."""
    learner, tokenizer = trainer.state.learner, trainer.state.tokenizer
    learner.training_pass.eval()
    counts = {"ambiguous": [0, 0], "ordinary": [0, 0]}
    batches = Batches(
        PreparedData(Path(trainer.config.data.folder)).cuts("test"),
        tokenizer,
        trainer.config.data.batches,
        training=False,
    )
    for batch in batches:
        with torch.no_grad():
            encoder_out, frame_lengths = learner.training_pass.encode(
                batch, evaluation_chunk(trainer.config.model.streaming)
            )
            alpha = trainer.config.normalisation.alpha
            found = beam_search(learner.model, encoder_out, frame_lengths, 8, 1, alpha, 3)
        for text, group, hypotheses in zip(batch.texts, batch.groups, found.tokens, strict=True):
            words, recognised = text.split(), tokenizer.decode(hypotheses[0]).split()
            if group == "ambiguous":
                counts["ambiguous"][0] += recognised[:1] != words[:1]
                counts["ambiguous"][1] += 1
                words, recognised = words[1:], recognised[1:]
            counts["ordinary"][0] += sum(a != b for a, b in zip(words, recognised, strict=False))
            counts["ordinary"][1] += len(words)
    return {name: 100 * wrong / total for name, (wrong, total) in counts.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("capability")
    data = toy_data.make_toy_data(folder / "data", train=400, dev=150, gap=4)

    def train(name, branch_from=None, **changes):
        config, _ = read_config(config_parser("test"), toy_data.toy_settings(data, **SETTINGS | changes))
        (folder / name).mkdir()
        trainer = Trainer(config, folder / name, World(), branch_from)
        trainer.run()
        return trainer

    return train


def test_local_training_stays_near_chance_and_global_normalisation_does_not(run):
    base = run("local", **{"training.epochs": EPOCHS})
    start = base.folder / f"epoch-{EPOCHS}.pt"
    local = run("longer", start, **{"training.epochs": EPOCHS + FURTHER})
    global_ = run("global", start, **{"training.epochs": EPOCHS + FURTHER} | GLOBAL)
    assert local.state.progress.step == global_.state.progress.step
    before, after_local, after_global = errors(base), errors(local), errors(global_)
    assert before["ambiguous"] > 35
    assert after_local["ambiguous"] > 35
    assert after_global["ambiguous"] < 10
    assert max(x["ordinary"] for x in (before, after_local, after_global)) < 6
    local_mwer = errors(run("local-mwer", start, **{"training.epochs": EPOCHS + FURTHER} | FOR_ERRORS))
    global_mwer = errors(run("global-mwer", start, **{"training.epochs": EPOCHS + FURTHER} | GLOBAL | FOR_ERRORS))
    assert local_mwer["ambiguous"] > 35
    assert global_mwer["ambiguous"] < 10
    assert max(x["ordinary"] for x in (local_mwer, global_mwer)) < 6
