"""Invariant: a batch is the same, bit for bit, whichever process makes it and whenever; stopping after any number of
batches and resuming gives exactly the rest; ranks share no utterance.
"""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from lhotse import CutSet

from transducer_gn.common.errors import UserError
from transducer_gn.common.framing import Framing
from transducer_gn.config import BatchConfig, NoiseConfig, SpecAugmentConfig, VolumeConfig
from transducer_gn.data import epoch_plan, sampling
from transducer_gn.data.batches import Batch, Batches, Inputs
from transducer_gn.data.features import fbank
from transducer_gn.data.prepared import PreparedData

# Everything on that draws at random.
SETTINGS = BatchConfig(
    max_duration=12,
    num_buckets=4,
    num_workers=0,
    noise=NoiseConfig(enabled=True),
    volume=VolumeConfig(enabled=True),
)
PLAIN = replace(
    SETTINGS,
    noise=NoiseConfig(enabled=False),
    volume=VolumeConfig(enabled=False),
    spec_augment=SpecAugmentConfig(enabled=False),
)


@pytest.fixture(scope="module")
def data(prepared) -> PreparedData:
    return PreparedData(prepared)


@pytest.fixture(params=["small", "large"])
def size(request, monkeypatch):
    """Take the tiny corpus for what it is, or as a large one."""
    if request.param == "large":
        monkeypatch.setattr(epoch_plan, "SMALL_CORPUS", 10)


@pytest.fixture(scope="module")
def make(data):
    """Make batches of the tiny training part; utterances of the dev part serve as noise."""

    def build(settings=SETTINGS, training=True, cuts=None, **arguments) -> Batches:
        noise = CutSet.from_cuts(cut.drop_supervisions() for cut in data.cuts("dev-mini"))
        cuts = data.train_cuts() if cuts is None else cuts
        return Batches(cuts, data.tokenizer(60), settings, training=training, inputs=Inputs(noise=noise), **arguments)

    return build


def assert_same(first: list[Batch], second: list[Batch]) -> None:
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        assert one.ids == two.ids and one.texts == two.texts and one.groups == two.groups and one.units == two.units
        for name in ("features", "feature_lengths", "tokens", "token_lengths", "durations"):
            assert torch.equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.usefixtures("size")
def test_what_a_batch_holds(make, data):
    tokenizer = data.tokenizer(60)
    cuts = {cut.id: cut for cut in data.train_cuts()}
    batches = list(make(PLAIN))
    assert Counter(name for batch in batches for name in batch.ids) == Counter(cuts.keys())
    for batch in batches:
        size, longest = len(batch), int(batch.feature_lengths.max())
        assert batch.features.shape == (size, longest, 80) and batch.features.dtype == torch.float32
        assert batch.tokens.shape == (size, int(batch.token_lengths.max())) and batch.tokens.dtype == torch.int64
        assert list(batch.feature_lengths) == sorted(batch.feature_lengths, reverse=True)
        assert size * float(batch.durations.max()) <= PLAIN.max_duration + 1e-3 or size == 1
        for index, name in enumerate(batch.ids):
            supervision = cuts[name].supervisions[0]
            length, count = int(batch.feature_lengths[index]), int(batch.token_lengths[index])
            assert batch.texts[index] == supervision.text
            assert batch.tokens[index, :count].tolist() == tokenizer.encode(supervision.text)
            assert not batch.tokens[index, count:].any()
            assert batch.groups[index] == supervision.custom["kind"] and batch.custom[index] == supervision.custom
            assert batch.units[index] == min(name, supervision.custom.get("twin", name))
            assert np.array_equal(batch.features[index, :length].numpy(), cuts[name].load_features())
            assert (batch.features[index, length:] < -20).all()


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_after_any_number_of_batches_gives_exactly_the_rest(make, workers):
    settings = replace(SETTINGS, num_workers=workers)
    whole = list(make(settings).starting_at(3))
    assert len(whole) > 8
    batches = make(settings)
    for stop in (0, 1, 5, len(whole) - 1, len(whole)):
        # Neither another object nor what was taken from the same one before makes a difference.
        next(iter(batches.starting_at(3)))
        assert_same(list(batches.starting_at(3, stop)), whole[stop:])
        assert_same(list(make(settings).starting_at(3, stop)), whole[stop:])


@pytest.mark.parametrize("on_the_fly", [False, True])
def test_the_numbers_of_workers_and_threads_change_nothing(make, on_the_fly):
    settings = replace(SETTINGS, on_the_fly=on_the_fly)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        alone, helped = (list(make(replace(settings, num_workers=workers))) for workers in (0, 3))
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(threads)
    assert_same(alone, helped)


@pytest.mark.usefixtures("size")
def test_epochs_differ_in_order_and_hold_the_same_utterances(make):
    batches = make()
    first, second = list(batches), list(batches.starting_at(1))
    assert_same(first, list(batches.starting_at(0)))
    assert [batch.ids for batch in first] != [batch.ids for batch in second]
    assert Counter(n for b in first for n in b.ids) == Counter(n for b in second for n in b.ids)
    assert (len(first), len(second)) == (batches.count(0), batches.count(1))


@pytest.mark.usefixtures("size")
def test_another_seed_gives_other_batches(make):
    first, second = (list(make(replace(PLAIN, seed=seed))) for seed in (0, 1))
    assert [batch.ids for batch in first] != [batch.ids for batch in second]


def test_making_batches_leaves_the_generators_of_training_alone(make):
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = (random.random(), np.random.random(), torch.rand(1))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    list(make())
    assert (random.random(), np.random.random(), torch.rand(1)) == expected


def test_augmentation_differs_from_epoch_to_epoch_and_is_off_outside_training(make, data):
    def features_of(name: str, batches) -> torch.Tensor:
        batch = next(batch for batch in batches if name in batch.ids)
        index = batch.ids.index(name)
        return batch.features[index, : batch.feature_lengths[index]]

    settings = replace(SETTINGS, spec_augment=SpecAugmentConfig(probability=1.0))
    batches = make(settings)
    name = next(iter(data.train_cuts())).id
    first, second = (features_of(name, list(batches.starting_at(epoch))) for epoch in (0, 1))
    assert first.shape == second.shape and not torch.equal(first, second)
    evaluation = make(settings, training=False)
    plain = features_of(name, list(evaluation))
    assert np.array_equal(plain.numpy(), next(iter(data.train_cuts())).load_features())


@pytest.mark.usefixtures("size")
def test_evaluation_batches_keep_the_order_and_every_utterance(make, data):
    settings = replace(SETTINGS, min_duration=100)
    batches = make(settings, training=False, cuts=data.cuts("test-mini"))
    names = [name for batch in batches for name in sorted(batch.ids)]
    assert sorted(names) == sorted(cut.id for cut in data.cuts("test-mini"))
    assert {group for batch in batches for group in batch.groups} == {"ordinary", "ambiguous", "control"}


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("world_size", [2, 3])
def test_training_ranks_share_no_utterance_and_have_equally_many_batches(make, data, world_size):
    ranks = [list(make(rank=rank, world_size=world_size)) for rank in range(world_size)]
    assert len({len(batches) for batches in ranks}) == 1
    names = [name for batches in ranks for batch in batches for name in batch.ids]
    # Only the very last batches may repeat something, to have one utterance for each rank.
    repeated = [name for name in names if "_dup" in name]
    assert len(repeated) < world_size
    assert sorted(set(names) - set(repeated)) == sorted(cut.id for cut in data.train_cuts())
    assert len(names) - len(repeated) == len(set(names) - set(repeated))


def test_evaluation_ranks_see_every_utterance_once(make, data):
    ranks = [list(make(PLAIN, training=False, rank=rank, world_size=3)) for rank in range(3)]
    names = [name for batches in ranks for batch in batches for name in batch.ids]
    assert sorted(names) == sorted(cut.id for cut in data.train_cuts())


def test_fresh_features_are_those_of_the_audio(make, data):
    batch = next(iter(make(replace(PLAIN, on_the_fly=True))))
    cuts = {cut.id: cut for cut in data.train_cuts()}
    for index, name in enumerate(batch.ids):
        expected = cuts[name].drop_features().compute_features(fbank())
        got = batch.features[index, : batch.feature_lengths[index]].numpy()
        assert np.abs(got - expected).max() < 1e-4


def test_noise_is_mixed_at_the_level_asked_for(make, data):
    settings = replace(PLAIN, noise=NoiseConfig(enabled=True, probability=1.0, snr_low=-30.0, snr_high=-30.0))
    noisy, clean = list(make(settings)), list(make(PLAIN))
    for one, two in zip(noisy, clean, strict=True):
        assert one.ids == two.ids and torch.equal(one.feature_lengths, two.feature_lengths)
        assert (one.features[:, :50].exp().mean() / two.features[:, :50].exp().mean()) > 30


def test_filtering_counts_what_it_leaves_out(make, data):
    durations = sorted(cut.duration for cut in data.train_cuts())
    settings = replace(PLAIN, min_duration=durations[5], max_duration_of_utterance=durations[-4])
    report = make(settings).report
    assert (report.too_short, report.too_long, report.kept) == (5, 3, len(durations) - 8)
    assert "5 too short, 3 too long, 0 with too many tokens for their length" in str(report)


def test_utterances_with_more_tokens_than_frames_are_left_out(make, data, monkeypatch):
    tokenizer = data.tokenizer(60)
    lengths = {cut.id: len(tokenizer.encode(cut.supervisions[0].text)) for cut in data.train_cuts()}
    limit = sorted(lengths.values())[len(lengths) // 2]
    monkeypatch.setattr(Framing, "encoder_frames", lambda framing, feature_frames: limit)
    batches = make(PLAIN)
    kept = {name for batch in batches for name in batch.ids}
    assert kept == {name for name, length in lengths.items() if length <= limit}
    assert batches.report.too_many_tokens == len(lengths) - len(kept)
    twice = make(replace(PLAIN, max_token_density=2))
    assert twice.report.too_many_tokens == sum(length > 2 * limit for length in lengths.values())


def test_nothing_left_is_an_error(make):
    with pytest.raises(UserError, match="nothing to make batches of: 0 utterances .* too short"):
        make(replace(PLAIN, min_duration=1000))


@pytest.mark.parametrize(
    ("change", "named"), [({"seed": 5}, "seed was 0 and is now 5"), ({"max_duration": 9}, "max_dur")]
)
def test_batches_of_other_settings_are_refused(make, change, named):
    with pytest.raises(UserError, match=f"cannot resume: {named}"):
        make(replace(SETTINGS, **change)).check_identity(make(SETTINGS).identity())


@pytest.mark.usefixtures("size")
def test_batches_of_other_data_are_refused(make, data):
    with pytest.raises(UserError, match="cannot resume: utterances was"):
        make(SETTINGS, cuts=data.cuts("test-mini")).check_identity(make(SETTINGS).identity())


def test_batches_of_another_token_model_are_refused(data):
    before = Batches(data.train_cuts(), data.tokenizer(60), PLAIN, training=True).identity()
    with pytest.raises(UserError, match="cannot resume: token model was"):
        Batches(data.train_cuts(), data.tokenizer(32), PLAIN, training=True).check_identity(before)


def test_an_identity_survives_a_checkpoint(make, tmp_path):
    torch.save(make().identity(), tmp_path / "checkpoint.pt")
    before = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    # How many processes read the batches is no part of what they are: these may go on from there.
    now = make(replace(SETTINGS, num_workers=2))
    now.check_identity(before)
    assert before == now.identity()


def test_noise_without_noise_is_named(data):
    with pytest.raises(UserError, match="run prepare.sh with --musan"):
        Batches(data.train_cuts(), data.tokenizer(60), SETTINGS, training=True)


def test_a_batch_goes_to_a_device(make):
    batch = next(iter(make(PLAIN)))
    moved = batch.to("meta")
    assert moved.features.device.type == "meta" and moved.ids == batch.ids and len(moved) == len(batch)


def test_one_utterance_is_a_batch(data):
    cuts = CutSet.from_cuts([next(iter(data.train_cuts()))])
    batches = Batches(cuts, data.tokenizer(60), PLAIN, training=True)
    assert [len(batch) for batch in batches] == [1]


@pytest.mark.parametrize("wrong", [{"max_duration": 0}, {"num_workers": -1}, {"num_buckets": 0}])
def test_settings_that_make_no_sense_are_named(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        BatchConfig(**wrong)


@pytest.mark.usefixtures("size")
def test_the_largest_batches_are_those_with_most_audio_and_the_longest_utterance(make):
    batches = make(PLAIN)
    whole = list(batches.starting_at(2))
    audio = [len(batch) * float(batch.durations.max()) for batch in whole]
    longest = [float(batch.durations.max()) for batch in whole]
    expected = list(dict.fromkeys([audio.index(max(audio)), longest.index(max(longest))]))
    assert_same(batches.largest(2), [whole[number] for number in expected])


def test_batches_are_counted_and_resumed_without_running_a_sampler_again(make, monkeypatch):
    made = []
    plan_of = sampling.plan_of
    monkeypatch.setattr(sampling, "plan_of", lambda batches: made.append(1) or plan_of(batches))
    batches = make(PLAIN)
    batches.largest(0), batches.count(0), list(batches.starting_at(0, 3))
    assert made == [1]
