"""Invariant: validation recognises as recognition will: same limits, same words, same errors."""

from dataclasses import replace

import kaldialign
import pytest
from lhotse import CutSet, MonoCut

from transducer_gn.common.errors import UserError
from transducer_gn.config import RecognitionConfig, TrainingConfig
from transducer_gn.data.batches import FILTER_BANK_INPUTS, BatchDataset, NumberedCuts
from transducer_gn.data.prepared import PreparedData
from transducer_gn.recognition import utterances
from transducer_gn.recognition.system import load_system
from transducer_gn.search.beam import beam_search, search_together
from transducer_gn.training.distributed import World
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import TrainingPass
from transducer_gn.training.validation import Validator, validation_cuts


@pytest.mark.parametrize(("alpha", "limit"), [(0.5, 2), (1.0, 3)], ids=["global: as competitors", "local"])
def test_validation_searches_no_further_than_competitors_were_searched(train, tmp_path, monkeypatch, alpha, limit):
    used = []

    def noting(model, batches, rules):
        used.append(rules.max_tokens_per_frame)
        return search_together(model, batches, rules)

    monkeypatch.setattr(utterances, "search_together", noting)
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


class Corpus:
    """Two dev parts of made-up cuts."""

    folder = "data"

    def parts(self, role):
        return ["dev-clean", "dev-other"]

    def cuts(self, part):
        return CutSet.from_cuts(MonoCut(f"{part}-{n}", 0.0, 1.0, 0) for n in range(20))


def chosen(**settings):
    return [[cut.id for cut in part] for part in validation_cuts(TrainingConfig(**settings), Corpus())]


def test_utterances_are_the_first_of_all_sets_unless_said_otherwise():
    first = [[f"{part}-{n}" for n in range(3)] for part in ("dev-clean", "dev-other")]
    assert chosen(validation_utterances=6) == first
    assert chosen(validation_utterances=3, validation_sets=["dev-other"]) == first[1:]
    assert [len(part) for part in chosen(validation_utterances="all", validation_sets=["dev-clean"])] == [20]


def test_utterances_drawn_at_random_are_the_same_every_time_and_from_everywhere():
    drawn = chosen(validation_utterances=16, validation_random=True)
    assert drawn == chosen(validation_utterances=16, validation_random=True)
    assert all(len(set(part)) == 8 for part in drawn)
    assert [name.rsplit("-")[-1] for name in drawn[0]] != [name.rsplit("-")[-1] for name in drawn[1]]
    assert all(int(part[-1].rsplit("-", 1)[1]) >= 10 for part in drawn)


def test_a_set_that_is_not_there_is_named():
    with pytest.raises(UserError, match="validation_sets: data has no dev set 'dev', only dev-clean, dev-other"):
        chosen(validation_sets=["dev"])
