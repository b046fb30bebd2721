"""Invariant: validation recognises as recognition will: same limits, same words, same errors."""

from dataclasses import replace

import kaldialign
import pytest
from lhotse import CutSet

from transducer_gn.config import RecognitionConfig
from transducer_gn.data.batches import FILTER_BANK_INPUTS, BatchDataset, NumberedCuts
from transducer_gn.data.prepared import PreparedData
from transducer_gn.recognition import utterances
from transducer_gn.recognition.system import load_system
from transducer_gn.search.beam import beam_search
from transducer_gn.training.distributed import World
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import TrainingPass
from transducer_gn.training.validation import Validator


@pytest.mark.parametrize(("alpha", "limit"), [(0.5, 2), (1.0, 3)], ids=["global: as competitors", "local"])
def test_validation_searches_no_further_than_competitors_were_searched(train, tmp_path, monkeypatch, alpha, limit):
    used = []

    def noting(*arguments):
        *_, max_tokens_per_frame = arguments
        used.append(max_tokens_per_frame)
        return beam_search(*arguments)

    monkeypatch.setattr(utterances, "beam_search", noting)
    train(tmp_path / "exp", **{"training.epochs": 1, "training.memory_scan": "false", "normalisation.alpha": alpha})
    assert set(used) == {limit}


def test_error_rate_and_sentences_are_those_of_a_plain_search_and_count(toy, local_run):
    system = load_system(local_run)
    config = replace(system.config, training=replace(system.config.training, validation_utterances=6))
    data = PreparedData(toy.folder)
    validator = Validator(config, data, system.tokenizer, World())
    result = validator.validate(TrainingPass(system.model, config), SchedulePoint(0.6, 0.0))
    system.model.eval()
    # One utterance at a time.
    dataset = BatchDataset(system.tokenizer, config.data.batches, augment=False, inputs=FILTER_BANK_INPUTS)
    batches = [dataset[NumberedCuts(0, 0, CutSet.from_cuts([cut]))] for cut in data.cuts("dev").subset(first=6)]
    errors = words = 0
    said: dict[str, str] = {}
    for batch in batches:
        encoded = system.model.encoder(batch.features, batch.feature_lengths, system.chunk(RecognitionConfig()))
        found = beam_search(system.model, *encoded, config.training.validation_beam, 1, 0.6, 3)
        for text, hypotheses in zip(batch.texts, found.tokens, strict=True):
            hypothesis = system.tokenizer.decode(hypotheses[0])
            errors += kaldialign.edit_distance(text.split(), hypothesis.split())["total"]
            words += len(text.split())
            said[text] = hypothesis
    assert errors > 0
    assert result.values["wer"] == 100 * errors / words
    assert len(result.sentences) == 3
    assert all(said[reference] == hypothesis for reference, hypothesis in result.sentences)
