"""Whole training steps at the paper's size: encoder, search, objective, backward, optimiser; global over local.

    python benchmarks/training_step.py --json training_step.json

Variants, each in a process of its own, on the same batch of 10 s utterances and the same model:
  local      ours at alpha 1: no search
  global     ours at alpha 0.3 with N competitors from the same encoder pass
  paper_way  alpha 0.3 as the paper does it: competitors from an encoder pass of their own, and N + 1 dense lattices
             with all V weights at every point

The paper reports 8.8 times the time of local training, with batches 4.5 times smaller. The cost of search and lattices
depends on what the model says, so the parameters are random but for a planted part that makes searches look like those
of a trained model (see planted_weights.py); references are its best hypotheses with a token changed.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import torch
from measure import in_own_process, median_seconds, peak_bytes, write_result
from planted_weights import PlantedEncoder, PlantedModel

from transducer_gn.common.framing import FILTER_BANKS
from transducer_gn.config import Config, config_parser, read_config
from transducer_gn.data.batches import Batch
from transducer_gn.model.chunk import Chunk
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.search.competitors import Competitors
from transducer_gn.training.clock import Clock
from transducer_gn.training.dense_objective import dense_objective
from transducer_gn.training.optimiser import build_optimiser
from transducer_gn.training.schedule import SchedulePoint
from transducer_gn.training.training_pass import Plan, TrainingPass

VARIANTS = ("local", "global", "paper_way")
GLOBAL = SchedulePoint(alpha=0.3, regulariser=0.01)
CHUNK = Chunk(16, 64)
SECONDS = 10
SWEEP = (2, 5, 10, 20, 50)
DEFAULT_CONFIG = Path(__file__).parents[1] / "conf" / "librispeech.yaml"


class PlantedPass(TrainingPass):
    """A training pass that always searches at alpha 1.

    Planted weights are not roughly normalised, as trained ones are, so their search looks like that of a trained model
    at alpha 1 only. It costs the same at any alpha.
    """

    def search(self, encoder_out: torch.Tensor, frame_lengths: torch.Tensor, batch: Batch, alpha: float) -> Competitors:
        """Competitors at alpha 1, whatever `alpha` is."""
        return super().search(encoder_out, frame_lengths, batch, 1.0)


class Step:
    """A model, an optimiser and a batch."""

    def __init__(self, options: argparse.Namespace) -> None:
        flags = [f"--config={options.config}", f"--competitors.count={options.competitors}"]
        flags += [f"--competitors.max_tokens_per_frame={options.tokens_per_frame}"]
        # Updates cost what they cost, but must leave the planted part as it is, or the next step would search another.
        flags += ["--optimiser.initial_lr=1e-12"]
        self.config, _ = read_config(config_parser("benchmark"), flags)
        torch.manual_seed(options.seed)
        self.batch = random_batch(options.utterances)
        self.model = planted_model(self.config, self.batch)
        self.training_pass = PlantedPass(self.model, self.config).train()
        self.optimiser = build_optimiser(self.config.optimiser, self.model.parameters())
        self.clock = Clock(torch.device("cpu"))
        self._choose_references()

    @torch.no_grad()
    def _choose_references(self) -> None:
        """The best hypotheses, each with the token in its middle changed."""
        encoder_out, frame_lengths = self.training_pass.eval().encode(self.batch, CHUNK)
        found = self.training_pass.search(encoder_out, frame_lengths, self.batch, GLOBAL.alpha)
        tokens, lengths = found.tokens[:, 0], found.lengths[:, 0]
        middle = (lengths // 2)[:, None]
        tokens = tokens.scatter(1, middle, 1 + tokens.gather(1, middle) % (self.model.vocab_size - 1))
        self.batch = replace(self.batch, tokens=tokens, token_lengths=lengths)
        self.hypothesis_tokens = float(found.lengths.double().mean())
        self.training_pass.train()

    def run(self, variant: str) -> None:
        """One whole step."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = (
            self._paper_way()
            if variant == "paper_way"
            else self._ours(SchedulePoint(1.0, 0.0) if variant == "local" else GLOBAL)
        )
        with self.clock.part("backward"):
            loss.backward()
        with self.clock.part("optimiser"):
            self.optimiser.step()

    def _ours(self, weights: SchedulePoint) -> torch.Tensor:
        return self.training_pass(Plan(self.batch, CHUNK, None, seed=0), weights, 1.0, self.clock).loss

    def _paper_way(self) -> torch.Tensor:
        batch = self.batch
        self.training_pass.eval()
        with torch.no_grad(), self.clock.part("search"):
            encoder_out, frame_lengths = self.training_pass.encode(batch, CHUNK)
            competitors = self.training_pass.search(encoder_out, frame_lengths, batch, GLOBAL.alpha)
        self.training_pass.train()
        with self.clock.part("encoder"):
            encoder_out, frame_lengths = self.training_pass.encode(batch, CHUNK)
        with self.clock.part("objective"):
            tokens, lengths = competitors.with_references(batch.tokens, batch.token_lengths)
            outputs = self.model.predictor.unroll(tokens.flatten(0, 1)).flatten(0, 1)
            inputs = self.model.joiner.lattice_inputs(encoder_out, frame_lengths, outputs)
            return dense_objective(inputs, tokens, lengths, GLOBAL).loss


def planted_model(config: Config, batch: Batch) -> Transducer:
    """A model of the configured encoder, with a planted predictor and joiner."""
    model = build_model(config.model)
    planted = PlantedModel(config.model.vocab_size, config.model.encoder.dim)
    frames = int(FILTER_BANKS.encoder_lengths(batch.feature_lengths).max())
    model.encoder = PlantedEncoder(model.encoder, planted.encoder_out(len(batch), frames))
    model.predictor, model.joiner = planted.predictor, planted.joiner
    return model


def random_batch(utterances: int) -> Batch:
    """Utterances of equal length with random features; they have one token each, for the time being."""
    generator = torch.Generator().manual_seed(0)
    frames = SECONDS * 100
    return Batch(
        features=torch.randn(utterances, frames, FILTER_BANKS.feature_dim, generator=generator),
        feature_lengths=torch.full((utterances,), frames),
        tokens=torch.ones(utterances, 1, dtype=torch.int64),
        token_lengths=torch.ones(utterances, dtype=torch.int64),
        texts=[""] * utterances,
        ids=[str(n) for n in range(utterances)],
        groups=["ordinary"] * utterances,
        units=[str(n) for n in range(utterances)],
        durations=torch.full((utterances,), float(SECONDS)),
        custom=[{}] * utterances,
    )


def measure_variant(options: argparse.Namespace) -> dict:
    """Time and memory of one variant, in this process."""
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    step = Step(options)
    step.clock.take()
    memory = peak_bytes(lambda: step.run(options.variant))
    step.clock.take()
    seconds = median_seconds(lambda: step.run(options.variant), options.repeats, warm_up=0)
    parts = {name: value / options.repeats for name, value in step.clock.take().items()}
    return {"seconds": seconds, "peak_bytes": memory, "parts": parts, "hypothesis_tokens": step.hypothesis_tokens}


def run_variant(variant: str, options: argparse.Namespace, competitors: int) -> dict:
    """Time and memory of one variant, in a process of its own."""
    arguments = ["--variant", variant, "--competitors", competitors]
    for name in ("config", "threads", "repeats", "seed", "utterances", "tokens_per_frame"):
        arguments += [f"--{name.replace('_', '-')}", getattr(options, name)]
    return in_own_process(__file__, [str(x) for x in arguments], options.threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the ratios and all measurements to this file")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="model to measure")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="steps whose median is taken")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--utterances", type=int, default=2, help="of 10 s each in the batch")
    parser.add_argument("--competitors", type=int, default=10)
    parser.add_argument("--tokens-per-frame", type=int, default=3, help="that the search for competitors may emit")
    parser.add_argument("--no-sweep", action="store_true", help="leave out how the cost grows with N")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant is not None:
        print(json.dumps(measure_variant(options)))
        return
    measured = {}
    for variant in VARIANTS:
        measured[variant] = run_variant(variant, options, options.competitors)
        total = sum(measured[variant]["parts"].values())
        shares = ", ".join(f"{name} {value / total:.0%}" for name, value in measured[variant]["parts"].items())
        print(f"{variant:10} measured; {shares}", flush=True)
    local = measured["local"]
    ratios = {
        f"{variant}_over_local_{what}": measured[variant][key] / local[key]
        for variant in ("global", "paper_way")
        for what, key in (("time", "seconds"), ("memory", "peak_bytes"))
    }
    for name, value in ratios.items():
        print(f"  {name:28} {value:6.2f}")
    sweep = []
    for competitors in () if options.no_sweep else SWEEP:
        # Beside a local step of the same minute: machines change their pace while a sweep lasts.
        beside, ours = (run_variant(variant, options, competitors) for variant in ("local", "global"))
        sweep.append(
            {
                "competitors": competitors,
                "global_over_local_time": ours["seconds"] / beside["seconds"],
                "global_over_local_memory": ours["peak_bytes"] / beside["peak_bytes"],
            }
        )
        print("  " + "  ".join(f"{name} {value:.2f}" for name, value in sweep[-1].items()), flush=True)
    write_result(options.json, {"ratios": ratios, "measured": measured, "sweep": sweep})


if __name__ == "__main__":
    main()
