"""Invariant: a running average is the mean of what was added, and two of them give the mean over the time between."""

import pytest
import torch

from transducer_gn.common.errors import UserError
from transducer_gn.recognition.averaging import RunningAverage, average_between


def copy_of(state):
    return state | {"parameters": {name: value.clone() for name, value in state["parameters"].items()}}


def history(values, restart_at=None):
    """States of the average after each of the values that a parameter takes."""
    model = torch.nn.Linear(1, 1, bias=False).double()
    average = RunningAverage(model)
    states = []
    for step, value in enumerate(values, 1):
        torch.nn.init.constant_(model.weight, value)
        if step == restart_at:
            average.restart(model, step)
        else:
            average.add(model)
        states.append(copy_of(average.state_dict()))
    return states


def mean_of(parameters):
    return parameters["weight"].item()


def test_average_is_the_mean_of_all_values():
    assert mean_of(history([3.0, 5.0, 10.0])[-1]["parameters"]) == pytest.approx(6.0)


@pytest.mark.parametrize(("first", "last"), [(1, 3), (2, 4), (3, 4)])
def test_average_between_two_moments(first, last):
    values = [3.0, 5.0, 10.0, -2.0, 7.0]
    states = history(values)
    expected = sum(values[first:last]) / (last - first)
    assert mean_of(average_between(states[first - 1], states[last - 1])) == pytest.approx(expected)


def test_restart_forgets_what_came_before():
    states = history([3.0, 5.0, 10.0, 4.0, 6.0], restart_at=3)
    assert mean_of(states[2]["parameters"]) == 10.0
    assert mean_of(states[4]["parameters"]) == pytest.approx(5.0)


def test_averages_never_cross_a_change_of_alpha():
    states = history([3.0, 5.0, 10.0, 4.0, 6.0], restart_at=3)
    with pytest.raises(UserError, match="alpha was still changing"):
        average_between(states[1], states[4])


def test_nothing_in_between_is_refused():
    states = history([3.0, 5.0])
    with pytest.raises(UserError, match="nothing was added"):
        average_between(states[1], states[1])


def test_state_round_trip():
    model = torch.nn.Linear(1, 1, bias=False).double()
    average = RunningAverage(model)
    average.load_state_dict(history([3.0, 5.0, 10.0])[-1])
    torch.nn.init.constant_(model.weight, 2.0)
    average.add(model)
    assert average.count == 4 and mean_of(average.parameters) == pytest.approx(5.0)
