#!/usr/bin/env python3
"""Time of the batched beam search, over that of batched greedy search, of a plain one, and of its matrix products.

  beam_search.py --json result.json

Joiner 512, vocabulary 500, LSTM 512 (two layers, embedding 1024), 250 frames, batch 16, unless something varies. Ratios
are of processor time on one thread; all that a ratio compares runs in turn in the same process. Weights are planted so
that searches look like those of a trained model (see planted_weights.py); alpha is 1, since these weights have had no
regulariser to keep their log-sums near 0.

  beam4_over_greedy, beam10_over_greedy, beam50_over_greedy
      batched beam search over batched greedy search
  python_over_beam10
      time-synchronous search per utterance and hypothesis, with a predictor cache (plain_search.py), over ours, beam 10
  python_same_rules_over_beam10
      the same, but it leaves out what our pruning rules leave out, and so gives the same result
  lists_over_beam4_batch1, lists_over_beam10_batch1, lists_over_beam4_batch16, lists_over_beam10_batch16
      a search in plain lists with the same rules and weights multiplied out beforehand, one utterance after the other
      (list_search.py), over ours
  looping_over_greedy_batch1, looping_over_greedy_batch16
      greedy search from label to label, weights multiplied out beforehand (list_search.py), over ours
  beam10_over_matmul
      ours with beam 10 over nothing but its products: encoder projection, joiner outputs of the points it evaluates,
      LSTM gates, outputs and projections of the prefixes it creates, in the same batches and the same order
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from list_search import FoldedModel, ListBeamSearch, LoopingGreedySearch
from measure import write_result
from plain_search import PlainBeamSearch
from planted_weights import PlantedModel
from torch.nn import functional

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
        """Search without one."""
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
        step = self.model.predictor.step

        def counting_step(tokens, state):
            calls.append(("predictor", len(tokens)))
            return step(tokens, state)

        self.model.predictor.step = counting_step
        try:
            # In training mode no copy of the model is kept that would not know of being counted.
            self.model.train()
            self.beam(beam)
        finally:
            self.model.eval()
            hook.remove()
            del self.model.predictor.step
        return calls


def products_alone(setting: Setting, calls: list[tuple[str, int]]) -> Callable[[], None]:
    """A function that makes the matrix products of the given calls, in their order, and does nothing else."""
    joiner, predictor = setting.model.joiner, setting.model.predictor.predictor
    layers = [weight for layer in predictor.lstm.layers for weight in (layer.input_weight, layer.state_weight)]
    layers += [predictor.output.weight, joiner.predictor_projection.weight]
    weights = {"joiner": [joiner.output_weight.detach()], "predictor": [layer.value.detach() for layer in layers]}
    widths = {weight.shape[1] for parts in weights.values() for weight in parts}
    rows = {width: torch.randn(max(count for _, count in calls), width) for width in widths}

    def run() -> None:
        joiner.project_encoder(setting.encoder_out)
        for name, count in calls:
            for weight in weights[name]:
                functional.linear(rows[weight.shape[1]][:count], weight)

    return torch.no_grad()(run)


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
        "matmul": products_alone(setting, calls),
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
    ratios |= {f"{name}_over_beam10": seconds[name] / seconds["beam10"] for name in agreeing}
    ratios["beam10_over_matmul"] = seconds["beam10"] / seconds["matmul"]
    for size in (1, 16):
        ratios |= against_lists(size, repeats)
    return {
        "ratios": ratios,
        "seconds_per_utterance": seconds,
        "tokens_per_frame": sum(len(sequences[0]) for sequences in found) / setting.lengths.sum().item(),
        "share_with_the_same_best": agreeing,
        "per_frame_and_utterance": {
            f"rows of the {name}": sum(count for kind, count in calls if kind == name) / setting.lengths.sum().item()
            for name in ("joiner", "predictor")
        },
    }


def against_lists(batch: int, repeats: int) -> dict[str, float]:
    """Ratios of the searches in lists and ours, for a number of utterances."""
    setting = Setting(batch)
    folded = FoldedModel(setting.model)
    variants: dict[str, Callable[[], object]] = {"greedy": setting.greedy}
    looping = LoopingGreedySearch(folded, CAP)
    variants["looping"] = lambda: looping.search(setting.encoder_out)
    for beam in (4, 10):
        lists = ListBeamSearch(folded, beam, ALPHA, CAP)
        variants[f"beam{beam}"] = lambda beam=beam: setting.beam(beam)
        variants[f"lists{beam}"] = lambda lists=lists: [lists.search(frames) for frames in setting.encoder_out]
    seconds = processor_seconds(variants, repeats if batch > 1 else 5 * repeats)
    ratios = {
        f"lists_over_beam{beam}_batch{batch}": seconds[f"lists{beam}"] / seconds[f"beam{beam}"] for beam in (4, 10)
    }
    return ratios | {f"looping_over_greedy_batch{batch}": seconds["looping"] / seconds["greedy"]}


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
        print(f"{name:24} {value:8.2f}")
    for name, share in result["share_with_the_same_best"].items():
        print(f"same best hypothesis as {name}: {share:.0%} of utterances")
    write_result(arguments.json, result)


if __name__ == "__main__":
    main()
