#!/usr/bin/env python3
"""Operations that an update dispatches: what it would launch on a GPU, counted on a CPU; and a prediction of its time.

  launches.py --json result.json

Counted are operations of torch in the path that an accelerator takes, at the paper's size (99.7 M parameters, conf/
librispeech.yaml); launch_counter.py says how. There is no noise: the same commit gives the same numbers everywhere.
Encoder and optimiser run on the meta device, where nothing is computed and any look at a value would raise; search,
objective and recursion run on planted weights (planted_weights.py), since what they dispatch depends on values: how
many rounds a frame needs, how many tiles there are. The recursion is torch's own; k2's would be a kernel for each
diagonal of blocks of 32 tokens by 32 frames, forward and back: 2 * (U // 32 + T // 32 + 1).

An update is one of a batch of utterances of 12.5 s, LibriSpeech's mean: 3 of them fit into 40 s, 14 into 180 s. Its
parts: encoder, search, objective, recursion (forward and backward together), their backward passes, optimiser. It is

  local       at alpha 1: nobody searches
  same_pass   alpha 0.3, N 10, three tokens per frame, competitors from the encoder frames of the update itself
  ahead       the same, but competitors come from an encoder pass of their own, 20 batches searched at once

Ratios:
  search_launches_per_frame
      the difference between 24 and 8 frames, per frame; beam 11, 16 utterances
  search_waits_per_frame
      looks at the device in the same search
  search_launches_per_frame_at_worst
      random weights at alpha 0.3, under which every frame needs all rounds
  lookahead_launches_per_frame
      20 batches of 40 s searched at once (80 utterances of 10 s), per batch
  eve_launches
      a step of the optimiser
  launches_global_over_local, ..._ahead
      of whole updates, batches of 40 s; with _180s behind it, of 180 s
  v100_global_over_local, a100_global_over_local, with _ahead, with _graphs, with _40s
      PREDICTED times of whole updates of 180 s (prediction.py); _graphs: frames of the search replayed as CUDA graphs
"""

import argparse
from collections.abc import Callable

import torch
from launch_counter import Part, count
from measure import write_result
from planted_step import GLOBAL, LOCAL, configuration
from planted_weights import PlantedModel
from prediction import MACHINES, PAPERS_HOURS, predicted_hours, predicted_seconds
from torch import Tensor, nn
from update_parts import as_on_an_accelerator, encoder_parts, objective_parts, optimiser_parts

from transducer_gn.config import PredictorConfig
from transducer_gn.model.joiner import Joiner
from transducer_gn.model.predictor import build_predictor
from transducer_gn.search.beam import beam_search

BEAM = 11
SHORT, LONG = 8, 24
GROUP = 20
UTTERANCE_SECONDS = 12.5
FRAMES = 311
BATCHES = {"40s": 3, "180s": 14}
Ratios = dict[str, float]


class RandomModel(nn.Module):
    """A predictor and a joiner of the paper's size as they are before training: tokens at every frame."""

    def __init__(self, vocabulary: int = 500, dim: int = 512) -> None:
        super().__init__()
        self.predictor = build_predictor(PredictorConfig(dim=dim), vocabulary)
        self.joiner = Joiner(dim, dim, dim, vocabulary)


@torch.no_grad()
def search_per_frame(model: nn.Module, encoder_out: Tensor, alpha: float) -> Part:
    """What a search dispatches for one further frame of `encoder_out` [B, LONG, D], on average."""
    parts = []
    for frames in (SHORT, LONG):
        lengths = torch.full((len(encoder_out),), frames)
        arguments = (model, encoder_out[:, :frames], lengths, BEAM, BEAM, alpha, 3)
        with as_on_an_accelerator():
            parts.append(count(lambda arguments=arguments: beam_search(*arguments)))
    short, long = parts
    further = len(long.operations) - len(short.operations)
    # Both begin and end with the same operations; what lies between is more of the same.
    return Part(long.operations[-further:], long.waits - short.waits, 1 / (LONG - SHORT))


def count_search() -> tuple[Ratios, dict]:
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
        "search_launches_per_frame": parts["16 utterances"].launches,
        "search_waits_per_frame": parts["16 utterances"].summary()["waits"],
        "search_launches_per_frame_at_worst": parts["16 utterances, random weights"].launches,
        "lookahead_launches_per_frame": parts["80 utterances"].launches / GROUP,
    }
    return ratios, {name: described(part) for name, part in parts.items()}


def described(part: Part) -> dict:
    """What a part consists of."""
    by_operation = {name: number * part.share for name, number in part.by_operation().items()}
    return part.summary() | {"by_operation": by_operation}


Updates = dict[str, dict[str, Part]]


def updates_of(utterances: int) -> Updates:
    """The parts of the three kinds of updates."""
    config = configuration()
    torch.manual_seed(0)
    shared = encoder_parts(config, utterances, UTTERANCE_SECONDS) | optimiser_parts(config)
    pass_ahead = shared.pop("encoder ahead")
    local = objective_parts(config, utterances, UTTERANCE_SECONDS, LOCAL)
    ours = objective_parts(config, utterances, UTTERANCE_SECONDS, GLOBAL)
    planted = PlantedModel().eval()
    together = search_per_frame(planted, planted.encoder_out(GROUP * utterances, LONG), 1.0)
    together.share *= FRAMES / GROUP
    ahead = {name: part for name, part in ours.items() if name != "search"}
    return {
        "local": shared | local,
        "same_pass": shared | ours,
        "ahead": shared | ahead | {"encoder ahead": pass_ahead, "search": together},
    }


def launches(update: dict[str, Part]) -> float:
    """Operations of a whole update."""
    return sum(part.launches for part in update.values())


def predicted(update: dict[str, Part], machine: str, graphs: bool = False) -> float:
    """Predicted seconds of an update."""
    # A frame is its first round, a look, perhaps further rounds, each with a look, and its end.
    search = update.get("search")
    replayed = search.waits.total() + FRAMES if graphs and search is not None else 0.0
    return sum(
        predicted_seconds(part, MACHINES[machine], replayed if name == "search" else 0.0)
        for name, part in update.items()
    )


def count_updates() -> tuple[Ratios, dict]:
    """Ratios of whole updates, and what these consist of."""
    found = {batch: updates_of(utterances) for batch, utterances in BATCHES.items()}
    ratios: Ratios = {"eve_launches": found["40s"]["local"]["optimiser"].launches}
    for batch, update in found.items():
        end = "" if batch == "40s" else f"_{batch}"
        ratios[f"launches_global_over_local{end}"] = launches(update["same_pass"]) / launches(update["local"])
        ratios[f"launches_global_over_local_ahead{end}"] = launches(update["ahead"]) / launches(update["local"])
    predictions: dict[str, dict] = {}
    for batch, update in found.items():
        for machine in MACHINES:
            ways = {
                "local": predicted(update["local"], machine),
                "same_pass": predicted(update["same_pass"], machine),
                "same_pass_graphs": predicted(update["same_pass"], machine, graphs=True),
                "ahead": predicted(update["ahead"], machine),
            }
            predictions[f"{machine}, {batch}"] = predicted_epochs(ways, BATCHES[batch])
            end = "" if batch == "180s" else f"_{batch}"
            for way, name in (("same_pass", ""), ("same_pass_graphs", "_graphs"), ("ahead", "_ahead")):
                ratios[f"{machine.lower()}_global_over_local{name}{end}"] = ways[way] / ways["local"]
    details = {
        batch: {
            kind: {"launches": launches(parts)} | {name: described(part) for name, part in parts.items()}
            for kind, parts in update.items()
        }
        for batch, update in found.items()
    }
    return ratios, {"counted": details, "predicted": predictions, "the paper's hours per epoch": PAPERS_HOURS}


def predicted_epochs(ways: dict[str, float], utterances: int) -> dict[str, dict[str, float]]:
    """Predicted seconds of updates, and hours of an epoch of them."""
    return {
        way: {
            "predicted_step_seconds": seconds,
            "predicted_epoch_hours": predicted_hours(seconds, utterances * UTTERANCE_SECONDS),
        }
        for way, seconds in ways.items()
    }


def show_updates(details: dict) -> None:
    """Tables of what was counted, and of what follows from it."""
    for batch, kinds in details["counted"].items():
        print(f"\ncounted, batches of {batch}: launches, waits, Gbytes, G multiplications")
        for kind, parts in kinds.items():
            print(f"  {kind}: {parts['launches']:.0f} launches")
            for name, part in parts.items():
                if name != "launches":
                    sizes = part["bytes"] / 1e9, part["multiplications"] / 1e9
                    print(f"    {name:20} {part['launches']:8.0f} {part['waits']:6.0f} {sizes[0]:8.2f} {sizes[1]:8.1f}")
    print("\nPREDICTION, not measured: seconds of an update, hours of an epoch on eight GPUs")
    for case, ways in details["predicted"].items():
        for way, values in ways.items():
            seconds, hours = values["predicted_step_seconds"], values["predicted_epoch_hours"]
            print(f"  {case:12} {way:18} {seconds:7.3f} s {hours:6.2f} h (prediction)")
    print("  the paper, measured on eight V100s: local, 180 s: 2.33 h; global, 40 s, ahead: 20.50 h\n")


# What can be counted; each gives ratios and details.
PARTS: dict[str, Callable[[], tuple[Ratios, dict]]] = {"search": count_search, "updates": count_updates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the result to")
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=sorted(PARTS), help="what to count")
    arguments = parser.parse_args()
    result: dict[str, dict] = {"ratios": {}}
    for name in arguments.parts:
        ratios, result[name] = PARTS[name]()
        result["ratios"] |= ratios
    if "updates" in result:
        show_updates(result["updates"])
    for name, value in result["ratios"].items():
        note = "  (prediction)" if name[1:4] == "100" else ""
        print(f"{name:44} {value:8.2f}{note}")
    write_result(arguments.json, result)


if __name__ == "__main__":
    main()
