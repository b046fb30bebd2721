"""Invariant: work in other processes comes back in order, and its failures come back, too."""

import os
import signal
import time

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.common.processes import run_each


def square(number: int) -> tuple[int, int]:
    time.sleep(0.01 * (5 - number))
    return number**2, os.getpid()


def test_results_come_in_order_each_from_a_process_of_its_own():
    results = run_each(square, [(number,) for number in range(6)], jobs=3, label="Squares")
    assert [result for result, _ in results] == [0, 1, 4, 9, 16, 25]
    assert len({process for _, process in results} | {os.getpid()}) == 7


def refuse() -> None:
    raise UserError("file x is bad")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_long() -> None:
    time.sleep(60)


def test_a_user_error_and_a_killed_process_are_reported_and_the_others_stopped():
    with pytest.raises(UserError, match="file x is bad"):
        run_each(lambda work: work(), [(refuse,), (sleep_long,)], jobs=2, label="Work")
    with pytest.raises(UserError, match="exit code -9 .* smaller --nj"):
        run_each(lambda work: work(), [(sleep_long,), (die,)], jobs=2, label="Work")
