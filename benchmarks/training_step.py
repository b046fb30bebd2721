"""Whole updates at the paper's size: encoder, search, objective, backward, optimiser; global over local.

    python benchmarks/training_step.py --json training_step.json

An update is what training does with a batch, `Learner.update` with the settings of conf/librispeech.yaml, on two
utterances of 10 s. Variants of it:
  local      ours at alpha 1: no search
  global     ours at alpha 0.3 with N competitors from the same encoder pass
  paper_way  alpha 0.3 as the paper does it: competitors from an encoder pass of their own, and N + 1 dense lattices
             with all V weights at every point
  mwer       as global, with expected word errors beside the likelihood, their posteriors made of raw scores
  mwer_local_scores  the same of locally normalised scores: all V weights at every point of every competitor

Times: all variants in one process, in turn, on the same model. A ratio is the median over rounds of the ratio to the
local update of the same round, so that a change of the machine's pace meets both. `..._time` is wall-clock time,
`..._processor_time` that of all threads, spinning included. Memory: each variant in a process of its own, what an
update adds to it at its peak. Updates for expected errors are also compared with the global one.

The paper reports 8.8 times the time of local training, with batches 4.5 times smaller. planted_step.py says what the
model is.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from measure import in_own_process, peak_bytes, write_result
from planted_step import CHUNK, GLOBAL, LOCAL, PAPERS_SIZE, PlantedLearner, PlantedPass, configuration

from transducer_gn.config import Config
from transducer_gn.training.clock import Clock
from transducer_gn.training.dense_objective import dense_objective
from transducer_gn.training.expected_errors import ErrorCounter
from transducer_gn.training.objective import Objective
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import Plan

SECONDS = 10
SWEEP = (2, 5, 10, 20, 50)


class PapersWay(PlantedPass):
    """A training pass as the paper describes it."""

    def forward(self, plan: Plan, point: SchedulePoint, warmup: float, clock: Clock) -> Objective:
        """See `TrainingPass.forward`."""
        batch = plan.batch
        self.eval()
        with torch.no_grad(), clock.part("search"):
            encoder_out, frame_lengths = self.encode(batch, plan.chunk)
            competitors = self.search(encoder_out, frame_lengths, batch, point.alpha)
        self.train()
        with clock.part("encoder"):
            encoder_out, frame_lengths = self.encode(batch, plan.chunk, warmup)
        with clock.part("objective"):
            tokens, lengths = competitors.with_references(batch.tokens, batch.token_lengths)
            outputs = self.model.predictor.unroll(tokens.flatten(0, 1)).flatten(0, 1)
            inputs = self.model.joiner.lattice_inputs(encoder_out, frame_lengths, outputs)
            return dense_objective(inputs, tokens, lengths, point)


@dataclass(frozen=True)
class Variant:
    """A kind of update.

    Attributes:
        point: alpha and the regulariser
        kind: of training pass
        changes: settings that differ, by section
    """

    point: SchedulePoint
    kind: type[PlantedPass] = PlantedPass
    changes: tuple[tuple[str, str, object], ...] = ()

    def training_pass(self, learner: PlantedLearner, config: Config) -> PlantedPass:
        """The training pass of this variant for a learner's model."""
        for section, name, value in self.changes:
            config = replace(config, **{section: replace(getattr(config, section), **{name: value})})
        return self.kind(learner.model, config, ErrorCounter(config.mwer, planted_text))


def planted_text(tokens: Sequence[int]) -> str:
    """Words of two pieces on average."""
    return "".join(f" {token}" if token % 2 else str(token) for token in tokens)


WITH_ERRORS = replace(GLOBAL, mwer=0.5)
# The first is what all others are compared with. A further one needs a line here.
VARIANTS = {
    "local": Variant(LOCAL),
    "global": Variant(GLOBAL),
    "paper_way": Variant(GLOBAL, PapersWay),
    "mwer": Variant(WITH_ERRORS),
    "mwer_local_scores": Variant(WITH_ERRORS, changes=(("mwer", "scores", "local"),)),
}
OF_SWEEP = {f"global_n{count}": Variant(GLOBAL, changes=(("competitors", "count", count),)) for count in SWEEP}
ALL = VARIANTS | OF_SWEEP


class Updates:
    """A model that is updated in any of several ways."""

    def __init__(self, options: argparse.Namespace, names: Sequence[str]) -> None:
        torch.set_num_threads(options.threads)
        config = configuration(
            options.config,
            competitors_count=options.competitors,
            competitors_max_tokens_per_frame=options.tokens_per_frame,
            training_seed=options.seed,
        )
        self.learner = PlantedLearner(config, options.utterances, SECONDS)
        self.clock = Clock(torch.device("cpu"))
        self._passes = {name: ALL[name].training_pass(self.learner, config) for name in names}

    def run(self, name: str) -> None:
        """One update."""
        self.learner.use(self._passes[name])
        plan = Plan(self.learner.batch, CHUNK, None, seed=0)
        self.learner.update([plan], ALL[name].point, 1.0, self.clock)

    def measure(self, name: str) -> dict:
        """Seconds of one update, and of its parts."""
        self.clock.take()
        wall, processor = time.perf_counter(), time.process_time()
        self.run(name)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        return {"seconds": wall, "processor_seconds": processor, "parts": self.clock.take()}


def measure_times(options: argparse.Namespace, names: Sequence[str]) -> dict[str, list[dict]]:
    """Rounds of updates, in each of which every variant has its turn."""
    updates = Updates(options, names)
    for name in names:
        updates.run(name)
    rounds: dict[str, list[dict]] = {name: [] for name in names}
    for number in range(options.repeats):
        # Now one goes first, now another: neighbours are not always the same.
        for name in names if number % 2 == 0 else reversed(names):
            rounds[name].append(updates.measure(name))
    return rounds


def ratios_of(rounds: dict[str, list[dict]], memory: dict[str, int]) -> dict[str, float]:
    """Each variant over the first, `local`, and those for expected errors over `global`."""
    local, *others = rounds
    compared = [(name, local) for name in others]
    compared += [(name, "global") for name in others if ALL[name].point.mwer > 0 and "global" in rounds]
    result = {}
    for name, base in compared:
        for what, key in (("time", "seconds"), ("processor_time", "processor_seconds")):
            pairs = zip(rounds[name], rounds[base], strict=True)
            result[f"{name}_over_{base}_{what}"] = statistics.median(own[key] / other[key] for own, other in pairs)
        if name in memory:
            result[f"{name}_over_{base}_memory"] = memory[name] / memory[base]
    return result


def summary(rounds: list[dict]) -> dict:
    """Medians over rounds."""
    parts = {name: statistics.median(each["parts"].get(name, 0.0) for each in rounds) for name in rounds[0]["parts"]}
    medians = {key: statistics.median(each[key] for each in rounds) for key in ("seconds", "processor_seconds")}
    return medians | {"parts": parts, "rounds": [each["seconds"] for each in rounds]}


def parse() -> argparse.Namespace:
    """Flags of the program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the ratios and all measurements to this file")
    parser.add_argument("--config", type=Path, default=PAPERS_SIZE, help="model to measure")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--utterances", type=int, default=2, help="of 10 s each in the batch")
    parser.add_argument("--competitors", type=int, default=10)
    parser.add_argument("--tokens-per-frame", type=int, default=3, help="that the search for competitors may emit")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="what to measure")
    parser.add_argument("--sweep", action="store_true", help="measure how the time grows with N as well")
    parser.add_argument("--role", choices=("memory", "times"), help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_process(options: argparse.Namespace, role: str, names: Sequence[str]) -> dict:
    """What this program measures in a process of its own."""
    arguments = ["--role", role, "--variants", *names] + ["--sweep"] * (options.sweep and role == "times")
    for name in ("config", "threads", "repeats", "seed", "utterances", "competitors", "tokens_per_frame"):
        arguments += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    return in_own_process(__file__, arguments, options.threads)


def main() -> None:
    options = parse()
    names = [name for name in ALL if name in options.variants or (options.sweep and name in OF_SWEEP)]
    if options.role == "memory":
        updates = Updates(options, options.variants)
        print(json.dumps({"peak_bytes": peak_bytes(lambda: updates.run(options.variants[0]))}))
        return
    if options.role == "times":
        print(json.dumps(measure_times(options, names)))
        return
    memory = {name: in_a_process(options, "memory", [name])["peak_bytes"] for name in options.variants}
    rounds = in_a_process(options, "times", options.variants)
    ratios = ratios_of(rounds, memory)
    measured = {name: summary(own) | {"peak_bytes": memory.get(name)} for name, own in rounds.items()}
    for name, own in measured.items():
        shares = ", ".join(f"{part} {value:.2f}" for part, value in own["parts"].items())
        print(f"{name:12} {own['seconds']:.2f} s, {own['processor_seconds']:.2f} s of processors; {shares}")
    for name, value in ratios.items():
        print(f"  {name:40} {value:6.2f}")
    write_result(options.json, {"ratios": ratios, "measured": measured})


if __name__ == "__main__":
    main()
