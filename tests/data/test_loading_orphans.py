"""Invariant: a process that loads batches does not outlive the training that started it."""

import multiprocessing
import os
import signal
from unittest.mock import patch

from transducer_gn.data.loading import leave_stopping_to_training


def begin_as_an_orphan() -> None:
    """As when training was killed before this process could ask to die with it."""
    with patch.object(os, "getppid", return_value=1):
        leave_stopping_to_training(0)


def test_one_that_starts_when_training_is_dead_ends_at_once():
    process = multiprocessing.get_context("fork").Process(target=begin_as_an_orphan)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
