#!/usr/bin/env python3
"""Time of the batched beam search, over that of batched greedy search, of a plain one, and of its matrix products.

  beam_search.py --json result.json

Joiner 512, vocabulary 500, LSTM 512 (two layers, embedding 1024), 250 frames, batch 16, unless something varies. Ratios
are of processor time on one thread; all that a ratio compares runs in turn in the same process. Weights are planted so
that searches look like those of a trained model (see planted_weights.py); alpha is 1, since these weights have had no
regulariser to keep their log-sums near 0.

  beam4_over_greedy, beam10_over_greedy, beam50_over_greedy
      batched beam search over batched greedy search
  beam10_over_greedy_multiplications
      how many more multiplications a beam of 10 takes than greedy search takes at least (one point for each label, one
      step of the predictor for each token): counted, not timed
  python_over_beam10
      time-synchronous search per utterance and hypothesis, with a predictor cache (plain_search.py), over ours, beam 10
  python_same_rules_over_beam10
      the same, but it leaves out what our pruning rules leave out, and so gives the same result
  lists_over_beam4_batch1, lists_over_beam10_batch1, lists_over_beam4_batch16, lists_over_beam10_batch16
      a search in plain lists with our rules, one utterance after the other, all weights multiplied out, folded and laid
      out beforehand (list_search.py), over ours
  looping_over_greedy_batch1, looping_over_greedy_batch16
      greedy search from label to label on the same weights (list_search.py), over ours, which gives no scores here
  packed_lists_over_..., packed_looping_over_...
      the same opponents on the packed weights that ours multiplies by (transducer_gn/model/packed.py): what is left is
      the bookkeeping
  beam10_over_matmul
      ours with beam 10 over nothing but its products as torch makes them: encoder projection, joiner outputs of the
      points it evaluates, LSTM gates, outputs and projections of the prefixes it creates, in the same batches and the
      same order
  beam10_over_packed_matmul
      the same by packed weights, without those products that ours has at hand or folded
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
from list_search import FoldedModel, ListBeamSearch, LoopingGreedySearch, PlainWeight
from measure import write_result
from plain_search import PlainBeamSearch
from planted_weights import PlantedModel, PlantedPredictor
from torch import Tensor

from transducer_gn.model.packed import PackedWeight
from transducer_gn.model.predictor import State
from transducer_gn.search.beam import beam_search
from transducer_gn.search.greedy import greedy_search

ALPHA = 1.0
CAP = 3


class Setting:
    """A model and frames to search; what its search multiplies is counted on request."""

    def __init__(self, batch: int = 16, frames: int = 250, vocabulary: int = 500, dim: int = 512) -> None:
        torch.manual_seed(0)
        self.model = PlantedModel(vocabulary, dim).eval()
        self.encoder_out = self.model.encoder_out(batch, frames)
        self.lengths = torch.full((batch,), frames)

    def beam(self, beam: int) -> list[list[list[int]]]:
        """Search with a beam."""
        return beam_search(self.model, self.encoder_out, self.lengths, beam, beam, ALPHA, CAP).tokens

    def greedy(self) -> list[list[list[int]]]:
        """Search without one, and without scores."""
        return greedy_search(self.model, self.encoder_out, self.lengths, max_tokens_per_frame=CAP).tokens

    def plain(self, utterance: int, beam: int, threshold: bool) -> list[list[int]]:
        """The plain search on one utterance."""
        search = PlainBeamSearch(self.model, beam, ALPHA, CAP, threshold)
        return [list(tokens) for tokens, _ in search.search(self.encoder_out[utterance])]

    def products(self, beam: int) -> list[tuple[str, int]]:
        """The calls of joiner and predictor in one search, in their order, and the number of rows of each."""
        calls: list[tuple[str, int]] = []
        hook = self.model.joiner.register_forward_hook(
            lambda module, inputs, logits: calls.append(("joiner", logits.shape[:-1].numel()))
        )
        counted = SimpleNamespace(predictor=CountingPredictor(self.model.predictor, calls), joiner=self.model.joiner)
        try:
            beam_search(counted, self.encoder_out, self.lengths, beam, beam, ALPHA, CAP)
        finally:
            hook.remove()
        return calls


class CountingPredictor:
    """A predictor that notes how many rows it is called with."""

    def __init__(self, predictor: PlantedPredictor, calls: list[tuple[str, int]]) -> None:
        self.initial_state = predictor.initial_state
        self._step = predictor.step
        self._calls = calls

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """See `Predictor.step`."""
        self._calls.append(("predictor", len(tokens)))
        return self._step(tokens, state)


def multiplications(setting: Setting, calls: list[tuple[str, int]]) -> dict[str, float]:
    """Multiplications per frame and utterance, in millions: of the given calls, and the least for greedy search."""
    frames = setting.lengths.sum().item()
    rows = {name: sum(count for kind, count in calls if kind == name) / frames for name in ("joiner", "predictor")}
    tokens = sum(len(own[0]) for own in setting.greedy()) / frames
    joiner = setting.model.joiner
    parts = predictor_weights(setting, folded=True)
    costs = {"joiner": joiner.output_weight.numel(), "predictor": sum(part.numel() for part in parts)}
    frame = joiner.encoder_projection.weight.value.numel()

    def millions(of: dict[str, float]) -> float:
        return (frame + sum(costs[name] * count for name, count in of.items())) / 1e6

    return {"greedy": millions({"joiner": 1 + tokens, "predictor": tokens}), "beam10": millions(rows)}


def predictor_weights(setting: Setting, folded: bool) -> list[Tensor]:
    """What a step of the predictor multiplies by, the joiner's projection included.

    Args:
        setting: what is searched
        folded: without the embedding's share of the first gates, which ours has at hand, and with one matrix for the
            output layer and the projection
    """
    predictor = setting.model.predictor.predictor
    layers = [weight for layer in predictor.lstm.layers for weight in (layer.input_weight, layer.state_weight)]
    layers += [predictor.output.weight, setting.model.joiner.predictor_projection.weight]
    return [layer().detach() for layer in (layers[1:-1] if folded else layers)]


def products_alone(setting: Setting, calls: list[tuple[str, int]], packed: bool) -> Callable[[], None]:
    """A function that makes the matrix products of the given calls, in their order, and does nothing else.

    Args:
        setting: what is searched
        calls: of joiner and predictor, with their numbers of rows
        packed: by packed weights, folded
    """
    joiner = setting.model.joiner
    weights = {"joiner": [joiner.output_weight], "predictor": predictor_weights(setting, folded=packed)}
    kind = PackedWeight if packed else PlainWeight
    multiplied = {
        name: [(weight.shape[1], kind(weight.detach())) for weight in parts] for name, parts in weights.items()
    }
    frames = kind(joiner.encoder_projection.weight().detach())
    widths = {width for parts in multiplied.values() for width, _ in parts}
    rows = {width: torch.randn(max(count for _, count in calls), width) for width in widths}

    def run() -> None:
        frames.product(setting.encoder_out)
        for name, count in calls:
            for width, weight in multiplied[name]:
                weight.product(rows[width][:count])

    return torch.no_grad()(run)


def against_lists(batch: int, repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """Ratios of the searches in lists and ours for a number of utterances, and seconds for one of them."""
    setting = Setting(batch)
    variants: dict[str, Callable[[], object]] = {"greedy": setting.greedy}
    ours = {"looping": "greedy"}
    for beam in (4, 10):
        variants[f"beam{beam}"] = partial(setting.beam, beam)
        ours[f"lists{beam}"] = f"beam{beam}"
    for prefix, packed in (("", False), ("packed_", True)):
        folded = FoldedModel(setting.model, packed)
        variants[f"{prefix}looping"] = partial(LoopingGreedySearch(folded, CAP).search, setting.encoder_out)
        for beam in (4, 10):
            search = ListBeamSearch(folded, beam, ALPHA, CAP)
            variants[f"{prefix}lists{beam}"] = partial(search.search_all, setting.encoder_out)
    check_same(setting, variants)
    seconds = processor_seconds(variants, repeats if batch > 1 else 5 * repeats)
    ratios = {
        f"{prefix}{theirs.rstrip('0123456789')}_over_{own}_batch{batch}": seconds[prefix + theirs] / seconds[own]
        for prefix in ("", "packed_")
        for theirs, own in ours.items()
    }
    return ratios, {f"{name}, batch {batch}": value / batch for name, value in seconds.items()}


def check_same(setting: Setting, variants: dict[str, Callable[[], object]]) -> None:
    """Stop if more of an opponent's best sequences than rounding explains are not ours."""
    ours = {"looping": [own[0] for own in setting.greedy()]}
    ours |= {f"lists{beam}": [own[0] for own in setting.beam(beam)] for beam in (4, 10)}
    for name, run in variants.items():
        wanted = ours.get(name.removeprefix("packed_"))
        if wanted is None:
            continue
        found = [own if "looping" in name else own[0][0] for own in run()]
        if sum(one != other for one, other in zip(found, wanted, strict=True)) > len(wanted) // 10:
            raise SystemExit(f"{name} finds other sequences")


def processor_seconds(variants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median processor seconds of each, taken in turn after one round of warming up."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for repeat in range(repeats + 1):
        for name, run in variants.items():
            start = time.process_time()
            run()
            if repeat > 0:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main_ratios(repeats: int, plain_utterances: int) -> dict:
    """The ratios that the module's docstring names, and what they consist of."""
    setting = Setting()
    batch = len(setting.lengths)
    calls = setting.products(10)
    variants: dict[str, Callable[[], object]] = {
        "beam10": lambda: setting.beam(10),
        "matmul": products_alone(setting, calls, packed=False),
        "packed_matmul": products_alone(setting, calls, packed=True),
        "greedy": setting.greedy,
        "beam4": lambda: setting.beam(4),
        "beam50": lambda: setting.beam(50),
    }
    seconds = {name: value / batch for name, value in processor_seconds(variants, repeats).items()}

    found = setting.beam(10)
    agreeing = {}
    for name, threshold in (("python", False), ("python_same_rules", True)):
        start = time.process_time()
        plain = [setting.plain(utterance, 10, threshold) for utterance in range(plain_utterances)]
        seconds[name] = (time.process_time() - start) / plain_utterances
        same = [ours[0] == theirs[0] for ours, theirs in zip(found, plain, strict=False)]
        agreeing[name] = sum(same) / len(same)
    ratios = {f"beam{beam}_over_greedy": seconds[f"beam{beam}"] / seconds["greedy"] for beam in (4, 10, 50)}
    counted = multiplications(setting, calls)
    ratios["beam10_over_greedy_multiplications"] = counted["beam10"] / counted["greedy"]
    ratios |= {f"{name}_over_beam10": seconds[name] / seconds["beam10"] for name in agreeing}
    ratios |= {f"beam10_over_{name}": seconds["beam10"] / seconds[name] for name in ("matmul", "packed_matmul")}
    for size in (1, batch):
        more, times = against_lists(size, repeats)
        ratios |= more
        seconds |= times
    return {
        "ratios": ratios,
        "seconds_per_utterance": seconds,
        "tokens_per_frame": sum(len(sequences[0]) for sequences in found) / setting.lengths.sum().item(),
        "share_with_the_same_best": agreeing,
        "million_multiplications_per_frame": counted,
        "per_frame_and_utterance": {
            f"rows of the {name}": sum(count for kind, count in calls if kind == name) / setting.lengths.sum().item()
            for name in ("joiner", "predictor")
        },
    }


def growth() -> dict:
    """Processor milliseconds per utterance and frame as one size changes; beam 10, batch 16, 100 frames, V 500 else."""
    series = {
        "beam": (1, 4, 10, 20, 50),
        "batch": (1, 4, 16, 32),
        "frames": (100, 200, 400),
        "vocabulary": (250, 500, 1000),
    }
    result: dict[str, dict[int, float]] = {}
    for name, values in series.items():
        result[name] = {}
        for value in values:
            sizes = {"frames": 100} | ({} if name == "beam" else {name: value})
            setting = Setting(**sizes)
            start = time.process_time()
            setting.beam(value if name == "beam" else 10)
            result[name][value] = 1000 * (time.process_time() - start) / setting.lengths.sum().item()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the result to")
    parser.add_argument("--repeats", type=int, default=3, help="runs to take the median of, after one to warm up")
    parser.add_argument("--plain-utterances", type=int, default=2, help="utterances for the plain search")
    parser.add_argument("--no-growth", action="store_true", help="leave out how time grows with sizes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = main_ratios(arguments.repeats, arguments.plain_utterances)
    if not arguments.no_growth:
        result["growth_milliseconds_per_frame"] = growth()
    for name, value in result["ratios"].items():
        print(f"{name:40} {value:8.2f}")
    for name, share in result["share_with_the_same_best"].items():
        print(f"same best hypothesis as {name}: {share:.0%} of utterances")
    write_result(arguments.json, result)


if __name__ == "__main__":
    main()
