#!/usr/bin/env python3
"""Operations that the parts of an update dispatch: what they would launch on a GPU, counted on a CPU.

  launches.py --json result.json

Counted is every operation of torch that computes something, in the path that an accelerator takes; views and numbers of
the host are not. Composite operations count once: log-sums are one here and a few kernels on a GPU, a step of an LSTM
is four here and one call of cuDNN there. Operations that make the host wait for the device are counted apart, as waits.
There is no noise: the same commit gives the same numbers everywhere.

The search: LSTM of 2 x 512, joiner 512, vocabulary 500, beam 11, at most three tokens per frame; the difference between
24 and 8 frames, per frame. Rounds that no utterance needs are left out, so the numbers depend on the weights.

  search_launches_per_frame
      16 utterances of a model whose searches look like a trained one's (planted_weights.py)
  search_waits_per_frame
      looks at the device in the same search
  search_launches_per_frame_at_worst
      random weights at alpha 0.3, under which every frame needs all rounds
  lookahead_launches_per_frame
      20 batches of 40 s searched at once (80 utterances of 10 s), per batch
"""

import argparse
from collections import Counter
from collections.abc import Callable

import torch
from measure import write_result
from planted_weights import PlantedModel
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from transducer_gn.config import PredictorConfig
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import build_predictor
from transducer_gn.search import beam as beam_module
from transducer_gn.search.beam import beam_search

BEAM = 11
SHORT, LONG = 8, 24
GROUP = 20
# Operations that bring a value to the host.
WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero"}
# Operations that only look like ones that compute.
NOTHING = {"aten::detach", "aten::alias", "aten::lift_fresh", "aten::_unsafe_view", "aten::_reshape_alias"}


class LaunchCounter(TorchDispatchMode):
    """Counts what is dispatched while it is entered.

    Attributes:
        launches: number of operations by name
        waits: the same for those that make the host wait
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().split(".")[0]
        if name in WAITS:
            self.waits[name] += 1
        elif not function.is_view and name not in NOTHING:
            self.launches[name] += 1
        return function(*args, **(kwargs or {}))


def count(run: Callable[[], object]) -> LaunchCounter:
    """What a call dispatches."""
    with LaunchCounter() as counter:
        run()
    return counter


class RandomModel(nn.Module):
    """A predictor and a joiner of the paper's size as they are before training: tokens at every frame."""

    def __init__(self, vocabulary: int = 500, dim: int = 512) -> None:
        super().__init__()
        self.predictor = build_predictor(PredictorConfig(dim=dim), vocabulary)
        self.joiner = Joiner(dim, dim, dim, vocabulary)


def as_on_an_accelerator(run: Callable[[], object]) -> object:
    """Make a call with a search that does not take it for granted that it may look at values."""
    may_look = beam_module.may_look
    beam_module.may_look = lambda tensor: False
    try:
        return run()
    finally:
        beam_module.may_look = may_look


def search_per_frame(model: nn.Module, encoder_out: Tensor, alpha: float) -> dict[str, float | dict[str, float]]:
    """Launches and waits of a search for each further frame of `encoder_out` [B, LONG, D]."""
    counters = []
    for frames in (SHORT, LONG):
        lengths = torch.full((len(encoder_out),), frames)
        arguments = (model, encoder_out[:, :frames], lengths, BEAM, BEAM, alpha, 3)
        counters.append(count(lambda arguments=arguments: as_on_an_accelerator(lambda: beam_search(*arguments))))
    short, long = counters
    by_name = {name: (long.launches[name] - short.launches[name]) / (LONG - SHORT) for name in long.launches}
    return {
        "launches": sum(by_name.values()),
        "waits": (long.waits.total() - short.waits.total()) / (LONG - SHORT),
        "by_operation": {name: number for name, number in sorted(by_name.items(), key=lambda x: -x[1]) if number},
    }


def count_search() -> tuple[dict[str, float], dict[str, dict]]:
    """Ratios of the search, and what they consist of."""
    torch.manual_seed(0)
    planted, random = PlantedModel().eval(), RandomModel().eval()
    parts = {
        "16 utterances": search_per_frame(planted, planted.encoder_out(16, LONG), 1.0),
        "1 utterance": search_per_frame(planted, planted.encoder_out(1, LONG), 1.0),
        "16 utterances, random weights": search_per_frame(random, torch.randn(16, LONG, 512), 0.3),
        "80 utterances": search_per_frame(planted, planted.encoder_out(80, LONG), 1.0),
    }
    ratios = {
        "search_launches_per_frame": parts["16 utterances"]["launches"],
        "search_waits_per_frame": parts["16 utterances"]["waits"],
        "search_launches_per_frame_at_worst": parts["16 utterances, random weights"]["launches"],
        "lookahead_launches_per_frame": parts["80 utterances"]["launches"] / GROUP,
    }
    return ratios, parts


# What an update consists of; each part gives ratios and details.
PARTS: dict[str, Callable[[], tuple[dict[str, float], dict[str, dict]]]] = {"search": count_search}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the result to")
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=sorted(PARTS), help="what to count")
    arguments = parser.parse_args()
    result: dict[str, dict] = {"ratios": {}}
    with torch.no_grad():
        for name in arguments.parts:
            ratios, result[name] = PARTS[name]()
            result["ratios"] |= ratios
    for name, value in result["ratios"].items():
        print(f"{name:36} {value:8.2f}")
    write_result(arguments.json, result)


if __name__ == "__main__":
    main()
