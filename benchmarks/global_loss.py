"""The cost of the globally normalised loss, forward and backward, as ratios to the local loss of the same utterance.

    python benchmarks/global_loss.py --json global_loss.json

Variants, each measured in a process of its own on the same random inputs:
  local_dense     the reference alone, all V weights at every point kept for backward (alpha 1): the opponent
  local_tiled     the same loss in tiles that backward computes again, as ours does: the opponent that saves memory
  global_dense    the paper's way: N + 1 lattices with all V weights at every point
  global_exact    ours, the regulariser at all points: the same loss as global_dense
  global_sampled  ours, the regulariser at a sample of the competitors' points

Competitors are the reference with 1 to 3 edits (substitution, insertion, deletion) at uniformly random places, or
(late) among its last fifth. Time is the median of several forward and backward passes; memory is what a pass adds to
the process at its peak.
"""

import argparse
import json
import random

import torch
from measure import in_own_process, median_seconds, peak_bytes, sgemm_rate, write_result

from transducer_gn.config import ObjectiveConfig
from transducer_gn.lattice.joint import LatticeInputs, OutputLayer
from transducer_gn.lattice.prefix_tree import build_prefix_tree
from transducer_gn.training.dense_objective import dense_objective
from transducer_gn.training.nbest_objective import nbest_objective
from transducer_gn.training.schedule import SchedulePoint

VARIANTS = ("local_dense", "local_tiled", "global_dense", "global_exact", "global_sampled")
LOCAL, GLOBAL = SchedulePoint(alpha=1.0, regulariser=0.0), SchedulePoint(alpha=0.3, regulariser=0.01)
SHAPE = {"hidden": 512, "vocabulary": 500, "frames": 250, "tokens": 50, "competitors": 10}
SWEEPS = {"competitors": [2, 5, 10, 20, 50], "frames": [125, 250, 500], "tokens": [25, 50, 100]}


def edited(reference: list[int], vocabulary: int, late: bool, rng: random.Random) -> list[int]:
    """A copy of the reference with 1 to 3 random edits."""
    tokens = list(reference)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(int(0.8 * len(tokens)) if late else 0, len(tokens))
        kind = rng.choice(["substitute", "insert", "delete"])
        new = [] if kind == "delete" else [rng.randrange(1, vocabulary)]
        tokens[place : place + (kind != "insert")] = new
    return tokens


class Inputs:
    """Random inputs of one utterance, the same for all variants."""

    def __init__(self, options: argparse.Namespace) -> None:
        rng, generator = random.Random(options.seed), torch.Generator().manual_seed(options.seed)
        reference = [rng.randrange(1, options.vocabulary) for _ in range(options.tokens)]
        sequences = [reference]
        while len(sequences) <= options.competitors:
            candidate = edited(reference, options.vocabulary, options.late, rng)
            if candidate not in sequences:
                sequences.append(candidate)
        self.lengths = torch.tensor([[len(sequence) for sequence in sequences]])
        self.tokens = torch.zeros(1, len(sequences), int(self.lengths.max()), dtype=torch.int64)
        for n, sequence in enumerate(sequences):
            self.tokens[0, n, : len(sequence)] = torch.tensor(sequence)
        self.frame_lengths = torch.tensor([options.frames])
        self.tree = build_prefix_tree(self.tokens, self.lengths)

        def leaf(*shape: int, scale: float = 1.0) -> torch.Tensor:
            return (scale * torch.randn(*shape, generator=generator)).requires_grad_()

        self.frames = leaf(1, options.frames, options.hidden)
        self.prefixes = leaf(len(self.tree.parents), options.hidden)
        self.weight = leaf(options.vocabulary, options.hidden, scale=options.hidden**-0.5)
        self.bias = leaf(options.vocabulary)

    def loss(self, variant: str, regulariser_points: int) -> torch.Tensor:
        """The loss as a variant computes it."""
        if variant in ("local_dense", "global_dense"):
            local = variant == "local_dense"
            sequences = slice(0, 1) if local else slice(None)
            tokens, lengths = self.tokens[:, sequences], self.lengths[:, sequences]
            tokens = tokens[:, :, : int(lengths.max())]
            prefixes = self.prefixes[self.tree.nodes[:, sequences, : tokens.shape[2] + 1]].flatten(0, 2)
            return dense_objective(self.lattice_inputs(prefixes), tokens, lengths, LOCAL if local else GLOBAL).loss
        if variant == "local_tiled":
            # Nodes of the reference come first.
            tree = build_prefix_tree(self.tokens[:, :1, : int(self.lengths[0, 0])], self.lengths[:, :1])
            return nbest_objective(self.lattice_inputs(self.prefixes[: len(tree.parents)]), tree, LOCAL).loss
        settings = ObjectiveConfig("all" if variant == "global_exact" else regulariser_points)
        tree = build_prefix_tree(self.tokens, self.lengths)  # part of every training step
        return nbest_objective(self.lattice_inputs(self.prefixes), tree, GLOBAL, settings).loss

    def lattice_inputs(self, prefixes: torch.Tensor) -> LatticeInputs:
        """What a lattice of these prefixes [P, J] needs."""
        return LatticeInputs(self.frames, self.frame_lengths, prefixes, OutputLayer(self.weight, self.bias))

    def step(self, variant: str, regulariser_points: int) -> float:
        """One forward and backward pass; gives the loss."""
        for leaf in (self.frames, self.prefixes, self.weight, self.bias):
            leaf.grad = None
        loss = self.loss(variant, regulariser_points)
        loss.backward()
        return loss.item()

    def matrix_operations(self, variant: str, regulariser_points: int) -> int:
        """Multiplications and additions in products with all V outputs.

        What no implementation of a variant can avoid here is one product forward and two backward; ours computes the
        reference's logits twice.
        """
        points = self.frames.shape[1]
        product = 2 * self.weight.numel()
        reference = points * (int(self.lengths[0, 0]) + 1)
        others = points * (len(self.tree.parents) - int(self.lengths[0, 0]) - 1)
        if variant == "local_dense":
            return 3 * product * reference
        if variant == "local_tiled":
            return 4 * product * reference
        if variant == "global_dense":
            return 3 * product * points * int((self.lengths + 1).sum())
        return product * (4 * reference + 3 * (others if variant == "global_exact" else regulariser_points))


def measure_variant(options: argparse.Namespace) -> dict:
    """Time and memory of one variant, in this process."""
    torch.set_num_threads(options.threads)
    # Occupations far from the diagonal are denormal numbers, on which dense products are several times slower. Flushing
    # them to zero is the fair setting for the opponent; ours leaves such points out anyway.
    torch.set_flush_denormal(True)
    inputs = Inputs(options)

    def step() -> float:
        return inputs.step(options.variant, options.regulariser_points)

    # Memory first, while nothing is cached; a small product beforehand starts the thread pool and its buffers.
    torch.mm(torch.zeros(256, 256), torch.zeros(256, 256))
    memory = peak_bytes(step)
    seconds = median_seconds(step, options.repeats, warm_up=2)
    rate = sgemm_rate(2048, options.hidden, options.vocabulary)
    operations = inputs.matrix_operations(options.variant, options.regulariser_points)
    return {
        "seconds": seconds,
        "peak_bytes": memory,
        "loss": step(),
        "gemm_share": operations / rate / seconds,
        "distinct_prefixes": len(inputs.tree.parents) / int((inputs.lengths + 1).sum()),
    }


def run_variant(variant: str, options: argparse.Namespace, late: bool = False, **shape: int) -> dict:
    """Time and memory of one variant, in a process of its own."""
    arguments = [
        "--variant",
        variant,
        "--threads",
        options.threads,
        "--repeats",
        options.repeats,
        "--seed",
        options.seed,
    ]
    arguments += ["--regulariser-points", options.regulariser_points]
    for name, value in (SHAPE | shape).items():
        arguments += [f"--{name}", value]
    return in_own_process(__file__, [str(x) for x in arguments] + ["--late"] * late, options.threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the ratios and all measurements to this file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7, help="passes whose median is taken")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--regulariser-points", type=int, default=ObjectiveConfig().regulariser_points)
    parser.add_argument("--no-sweeps", action="store_true", help="leave out how the cost grows with N, T and U")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--late", action="store_true", help=argparse.SUPPRESS)
    for name, value in SHAPE.items():
        parser.add_argument(f"--{name}", type=int, default=value, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.variant is not None:
        print(json.dumps(measure_variant(options)))
        return

    measured = {}
    for variant in VARIANTS:
        measured[variant] = run_variant(variant, options)
        print(
            f"{variant:16} measured; matrix products are {measured[variant]['gemm_share']:.0%} of its time", flush=True
        )
    measured["global_sampled_late"] = run_variant("global_sampled", options, late=True)
    ratios = compare(measured)
    print("\nover local_dense unless said otherwise:")
    for name, value in ratios.items():
        print(f"  {name:32} {value:6.2f}")
    sweeps = {} if options.no_sweeps else sweep(options)
    write_result(options.json, {"ratios": ratios, "measured": measured, "sweeps": sweeps, "shape": SHAPE})


def compare(measured: dict) -> dict[str, float]:
    """The ratios by name."""

    def over(variant: str, opponent: str, what: str) -> float:
        return measured[variant][what] / measured[opponent][what]

    return {
        "sampled_time": over("global_sampled", "local_dense", "seconds"),
        "sampled_memory": over("global_sampled", "local_dense", "peak_bytes"),
        "sampled_time_late": over("global_sampled_late", "local_dense", "seconds"),
        "exact_time": over("global_exact", "local_dense", "seconds"),
        "exact_memory": over("global_exact", "local_dense", "peak_bytes"),
        "dense_time": over("global_dense", "local_dense", "seconds"),
        "dense_memory": over("global_dense", "local_dense", "peak_bytes"),
        "sampled_over_tiled_local_time": over("global_sampled", "local_tiled", "seconds"),
        "sampled_over_tiled_local_memory": over("global_sampled", "local_tiled", "peak_bytes"),
        "dense_over_sampled_time": over("global_dense", "global_sampled", "seconds"),
        "dense_over_sampled_memory": over("global_dense", "global_sampled", "peak_bytes"),
    }


def sweep(options: argparse.Namespace) -> dict:
    """How time and memory of the sampled variant grow, each over local_dense at the same T and U."""
    result = {}
    for name, values in SWEEPS.items():
        result[name] = []
        for value in values:
            local, ours = (
                run_variant(variant, options, **{name: value}) for variant in ("local_dense", "global_sampled")
            )
            row = {
                name: value,
                "sampled_time": ours["seconds"] / local["seconds"],
                "sampled_memory": ours["peak_bytes"] / local["peak_bytes"],
                "distinct_prefixes": ours["distinct_prefixes"],
            }
            print(
                "  " + "  ".join(f"{key} {x:.2f}" if isinstance(x, float) else f"{key} {x}" for key, x in row.items())
            )
            result[name].append(row)
    return result


if __name__ == "__main__":
    main()
