"""Invariant: a decode gives the same results however it runs: at once or resumed, in whatever batches, simulated or
truly chunk by chunk; and its files say the same thing.
"""

import gzip
import json
import re
import shutil

import pytest
from scripts import run_script

from transducer_gn.common.errors import UserError
from transducer_gn.config import EvaluationDataConfig, RecognitionConfig
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation import decoding
from transducer_gn.evaluation.decoding import PartDecoder, chosen_parts
from transducer_gn.evaluation.results import compare_results, find_results, read_results
from transducer_gn.recognition.error_rates import total_errors
from transducer_gn.recognition.system import load_system


@pytest.fixture(scope="module")
def system(runs):
    return load_system(runs / "global")


def decoder(folder, system, toy, part="test", max_duration=3.0, **settings):
    return PartDecoder(
        folder, system, RecognitionConfig(**{"beam": 4} | settings), PreparedData(toy.folder), part, max_duration
    )


@pytest.fixture(scope="module")
def whole(system, toy, tmp_path_factory):
    return decoder(tmp_path_factory.mktemp("whole"), system, toy).run()


def test_every_utterance_is_there_once(whole, toy):
    cuts = {cut.id: cut.supervisions[0] for cut in PreparedData(toy.folder).cuts("test")}
    assert [utterance.id for utterance in whole.utterances] == sorted(cuts)
    for utterance in whole.utterances:
        assert " ".join(utterance.reference) == cuts[utterance.id].text
        assert utterance.group == cuts[utterance.id].custom["kind"]
        assert utterance.unit == utterance.id and utterance.custom == cuts[utterance.id].custom


@pytest.mark.parametrize("changes", [{"max_duration": 100.0}, {"streaming": "chunks"}])
def test_batches_and_the_way_of_streaming_do_not_matter(changes, whole, system, toy, tmp_path):
    assert decoder(tmp_path, system, toy, **changes).run().utterances == whole.utterances


def test_an_interrupted_decode_goes_on_where_it_stopped(whole, system, toy, tmp_path, monkeypatch):
    recognise, seen = decoding.recognise, []

    def stop_after_two(*arguments):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(recognise(*arguments))
        return seen[-1]

    monkeypatch.setattr(decoding, "recognise", stop_after_two)
    with pytest.raises(KeyboardInterrupt):
        decoder(tmp_path, system, toy).run()
    (unfinished,) = tmp_path.glob(".unfinished-*")
    # The machine died while the next line was written.
    unfinished.write_text(unfinished.read_text() + '{"id": "test-')
    done = {utterance.id for batch in seen for utterance in batch}

    def only_the_rest(system, batch, settings):
        assert not done & set(batch.ids)
        return recognise(system, batch, settings)

    monkeypatch.setattr(decoding, "recognise", only_the_rest)
    assert decoder(tmp_path, system, toy).run() == whole
    assert not list(tmp_path.glob(".unfinished-*"))
    monkeypatch.setattr(decoding, "recognise", None)
    assert decoder(tmp_path, system, toy).run() == whole


def test_what_is_not_needed_once_results_are_complete_goes_though_the_call_was_killed_before(
    whole, system, toy, tmp_path, monkeypatch
):
    with monkeypatch.context() as killed:
        killed.setattr(decoding.Unfinished, "remove", lambda self: None)
        decoder(tmp_path, system, toy).run()
    assert list(tmp_path.glob(".unfinished-*"))
    monkeypatch.setattr(decoding, "recognise", None)
    assert decoder(tmp_path, system, toy).run() == whole
    assert not list(tmp_path.glob(".unfinished-*"))


def test_what_was_begun_with_other_parameters_is_not_gone_on_with(whole, system, toy, tmp_path, runs):
    progress = decoding.Unfinished(tmp_path / ".unfinished-test-x.jsonl", {"parameters": "other"})
    progress.read()
    progress.add(whole.utterances)
    assert len(progress.read()) == len(whole.utterances)
    assert decoding.Unfinished(tmp_path / ".unfinished-test-x.jsonl", {"parameters": "own"}).read() == []


def test_what_two_calls_wrote_side_by_side_counts_once(whole, tmp_path):
    progress = decoding.Unfinished(tmp_path / ".unfinished-test-x.jsonl", {})
    progress.read()
    progress.add(whole.utterances[:4])
    progress.add(whole.utterances[2:])
    assert progress.read() == whole.utterances


def test_files_say_the_same(whole, system, toy, tmp_path):
    decoder(tmp_path, system, toy).run()
    (path,) = tmp_path.glob("results-test-*.json")
    content = json.loads(path.read_text())
    errors = total_errors(whole.utterances)
    assert read_results(path) == whole
    assert content["measures"]["all"]["rate"] == pytest.approx(errors.rate)
    assert content["measures"]["all"]["low"] <= errors.rate <= content["measures"]["all"]["high"]
    (summary,) = tmp_path.glob("wer-summary-test-*.txt")
    assert summary.read_text() == f"settings\tWER\n{whole.system}\t{errors.rate:.2f}\n"
    (recogs,) = tmp_path.glob("recogs-test-*.txt")
    first = whole.utterances[0]
    assert recogs.read_text().startswith(f"{first.id}:\tref={first.reference}\n{first.id}:\thyp={first.hypothesis}\n")
    (errs,) = tmp_path.glob("errs-test-*.txt")
    assert errs.read_text().startswith(f"%WER = {errors.rate:.2f}\n")


def test_systems_are_compared_on_the_same_utterances_only(whole):
    same = compare_results(whole, whole)
    assert {difference.change.value for difference in same.values()} == {0}
    assert {"all", "ordinary", "ambiguous"} == same.keys()
    shorter = type(whole)(whole.part, whole.system, {}, whole.utterances[1:])
    with pytest.raises(UserError, match="same utterances"):
        compare_results(whole, shorter)


def test_lookahead_sees_more_than_chunks(system, toy, tmp_path):
    result = decoder(tmp_path, system, toy, streaming="lookahead", method="greedy").run()
    assert result.system.endswith("lookahead-greedy")


@pytest.mark.parametrize(
    "wrong", [{"beam": 0}, {"streaming": "lookahead", "chunk": 4}, {"streaming": "chunks", "method": "greedy"}]
)
def test_contradicting_settings_are_refused(wrong):
    with pytest.raises(UserError):
        RecognitionConfig(**wrong)


def test_an_empty_or_unknown_set_is_named(system, toy, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(toy.folder, folder)
    gzip.open(folder / "fbank" / "cuts_test.jsonl.gz", "wt").close()
    empty = PartDecoder(tmp_path, system, RecognitionConfig(), PreparedData(folder), "test", 10.0)
    with pytest.raises(UserError, match="test set test is empty"):
        empty.run()
    with pytest.raises(UserError, match="no set 'test-clean', only dev, test"):
        chosen_parts(EvaluationDataConfig(sets=["test-clean"]), PreparedData(toy.folder))


def test_scripts_decode_compare_and_measure(runs):
    for name in ("local", "global"):
        output = run_script("decode.py", "--exp-dir", runs / name, "--beam", "2").stdout
        assert re.search(r"dev, all words +\d+\.\d\d", output) and "test, ambiguous sentences" in output
        assert set(find_results(runs / name)) == {"dev", "test"}
    output = run_script("decode.py", "--compare", runs / "local", runs / "global").stdout
    assert re.search(r"test, ambiguous sentences +\d+\.\d\d +\d+\.\d\d", output)
    arguments = ("--exp-dir", runs / "global", "--baseline", runs / "local", "--sets", "[test]", "--beam", "2")
    arguments += ("--utterances", "6")
    output = run_script("compute_latency.py", *arguments).stdout
    assert re.search(r"test, tokens of ambiguous sentences +\d+ +\d+ +[+-]\d+\.\d", output)
    written = json.loads((runs / "global" / "latency" / "against-local.json").read_text())
    assert written["test"]["emission"]["all"]["change"]["low"] <= written["test"]["emission"]["all"]["change"]["value"]


def test_script_says_in_one_sentence_what_is_missing(tmp_path):
    result = run_script("decode.py", "--exp-dir", tmp_path, check=False)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1 and "no finished epoch" in result.stderr
