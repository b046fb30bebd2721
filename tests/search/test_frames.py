"""Frames of several batches stand together without losing whose they are and when they end."""

import torch

from transducer_gn.search.frames import JoinedFrames


def three_batches() -> tuple[list[torch.Tensor], list[list[int]]]:
    """Frames that say which utterance and which time they are, and lengths; one batch has no frames at all."""
    shapes, lengths = [(2, 3), (1, 0), (3, 5)], [[3, 1], [0], [5, 0, 4]]
    batches, first = [], 0
    for utterances, longest in shapes:
        names = torch.arange(first, first + utterances)[:, None] * 100 + torch.arange(longest)
        batches.append(names[:, :, None].double())
        first += utterances
    return batches, lengths


def test_each_time_has_the_frames_of_those_that_have_not_ended():
    joined = JoinedFrames.of(*three_batches())
    order = joined.longest_first()
    by_time = [frames[:, 0].int().tolist() for frames in joined.by_time()]
    assert len(by_time) == 5
    for t, found in enumerate(by_time):
        assert found == [100 * utterance + t for utterance in order if joined.lengths[utterance] > t]


def test_rows_are_those_of_the_time_or_of_the_last_frame():
    joined = JoinedFrames.of(*three_batches())
    found = joined.frames[joined.rows_by_time()][:, :, 0].int().tolist()
    for t, row in enumerate(found):
        for utterance, length in enumerate(joined.lengths):
            if length:
                assert row[utterance] == 100 * utterance + min(t, length - 1)


def test_there_may_be_no_frames():
    joined = JoinedFrames.of([torch.zeros(2, 0, 4)], [[0, 0]])
    assert joined.by_time() == [] and len(joined.rows_by_time()) == 0
    alone = JoinedFrames.of([torch.zeros(1, 3, 4)], [[0]])
    assert alone.by_time() == []
