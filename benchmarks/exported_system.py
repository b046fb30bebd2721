#!/usr/bin/env python3
"""What a system gives once it is exported: texts against torch's, word error rates of float32 and int8, and time.

  exported_system.py --checkpoint exp/mini/alpha-0.3/epoch-4.pt --data-dir data/mini --set test-mini --json result.json

Every utterance is recognised from its audio, alone, on one thread, by beam and by greedy search: by torch, and by
onnxruntime with weights of both precisions. Torch's greedy search sees whole utterances under the mask of chunks.
With --decoded, texts are also compared with those in the results of decode.py, which come from stored features.

  float32_over_torch, int8_over_torch
      wall-clock time of the beam search's whole way from samples to text, over torch's
  int8_over_float32_bytes
      size of the three graphs
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measure import write_result

import transducer_gn
from transducer_gn.config import RecognitionConfig
from transducer_gn.data.features import fbank
from transducer_gn.data.prepared import PreparedData
from transducer_gn.evaluation.results import Results, read_results
from transducer_gn.export.write import export_system
from transducer_gn.recognition.error_rates import Recognised, total_errors
from transducer_gn.recognition.system import System
from transducer_gn.search.greedy import greedy_search

PRECISIONS = ("float32", "int8")
Recogniser = Callable[[np.ndarray], str]


@dataclass
class Outcome:
    """What one way of recognising made of all utterances."""

    texts: list[str]
    seconds: float


def utterances(data: PreparedData, part: str, most: int | None) -> Iterator[tuple[str, list[str], np.ndarray]]:
    """Id, words and samples of utterances that are spread evenly over a set."""
    cuts = list(data.cuts(part))
    count = min(most or len(cuts), len(cuts))
    for number in range(count):
        cut = cuts[number * len(cuts) // count]
        yield cut.id, cut.supervisions[0].text.split(), cut.load_audio()[0]


def torch_greedy(system: System, settings: RecognitionConfig) -> Recogniser:
    """Greedy search over a whole utterance."""

    @torch.no_grad()
    def recognise(samples: np.ndarray) -> str:
        features = torch.as_tensor(fbank().extract(samples[None], 16000))
        encoded = system.model.encoder(features[None], torch.tensor([len(features)]), system.chunk(settings))
        found = greedy_search(system.model, *encoded, max_tokens_per_frame=system.tokens_per_frame(settings))
        return system.tokenizer.decode(found.tokens[0][0])

    return recognise


def recognisers(system: System, folder: Path, beam: int) -> dict[str, Recogniser]:
    """All ways of recognising by name."""
    wide, greedy = RecognitionConfig(beam=beam), RecognitionConfig(method="greedy")
    ways: dict[str, Recogniser] = {
        "torch beam": lambda samples: system.transcribe(samples, wide).text,
        "torch greedy": torch_greedy(system, greedy),
    }
    for precision in PRECISIONS:
        exported = transducer_gn.load_exported(folder, precision)
        for name, settings in (("beam", wide), ("greedy", greedy)):
            ways[f"{precision} {name}"] = lambda samples, own=exported, how=settings: own.transcribe(samples, how).text
    return ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="a checkpoint, or a folder for its best epoch")
    parser.add_argument("--data-dir", type=Path, required=True, help="what prepare.sh made")
    parser.add_argument("--set", required=True, help="name of the test set")
    parser.add_argument("--utterances", type=int, help="at most so many, spread evenly over the set")
    parser.add_argument("--beam", type=int, default=8, help="hypotheses of the beam search")
    parser.add_argument(
        "--decoded", type=Path, action="append", default=[], help="results-*.json of decode.py; once for each method"
    )
    parser.add_argument("--json", help="file to write the result to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    system = transducer_gn.load(arguments.checkpoint)
    with tempfile.TemporaryDirectory() as name:
        written = export_system(system, Path(name), RecognitionConfig(), int8=True)
        ways = recognisers(system, Path(name), arguments.beam)
        outcomes = {way: Outcome([], 0.0) for way in ways}
        ids, references = [], []
        for number, (key, words, samples) in enumerate(
            utterances(PreparedData(arguments.data_dir), arguments.set, arguments.utterances), start=1
        ):
            ids.append(key)
            references.append(words)
            for way, recognise in ways.items():
                began = time.perf_counter()
                outcomes[way].texts.append(recognise(samples))
                outcomes[way].seconds += time.perf_counter() - began
            if number % 100 == 0:
                print(f"{number} utterances", flush=True)
    decoded = [read_results(path) for path in arguments.decoded]
    result = gather(outcomes, ids, references, decoded) | {"bytes": written.sizes, "beam": arguments.beam}
    sizes = [sum(size for name, size in written.sizes.items() if ("int8" in name) == small) for small in (False, True)]
    result["ratios"]["int8_over_float32_bytes"] = sizes[1] / sizes[0]
    for name, value in result["ratios"].items():
        print(f"{name:28} {value:8.3f}")
    write_result(arguments.json, result)


def gather(outcomes: dict[str, Outcome], ids: list[str], references: list[list[str]], decoded: list[Results]) -> dict:
    """Print and return error rates, and how many texts are torch's, and decode.py's of the same method."""
    rows = {}
    known = {
        results.identity["settings"]["method"]: {each.id: " ".join(each.hypothesis) for each in results.utterances}
        for results in decoded
    }
    print(f"{'':16} {'WER %':>8} {'as torch':>14} {'as decode.py':>14} {'seconds':>9}")
    for way, outcome in outcomes.items():
        own = [Recognised(i, r, t.split()) for i, r, t in zip(ids, references, outcome.texts, strict=True)]
        same = sum(a == b for a, b in zip(outcome.texts, outcomes[f"torch {way.split()[1]}"].texts, strict=True))
        rows[way] = {"wer": total_errors(own).rate, "same_texts": same, "seconds": outcome.seconds}
        as_decoded = "–"
        if texts := known.get(way.split()[1]):
            rows[way]["as_decoded"] = sum(texts[i] == t for i, t in zip(ids, outcome.texts, strict=True))
            as_decoded = f"{rows[way]['as_decoded']} of {len(ids)}"
        shares = f"{f'{same} of {len(ids)}':>14} {as_decoded:>14}"
        print(f"{way:16} {rows[way]['wer']:8.2f} {shares} {outcome.seconds:9.1f}")
    time_of = {way: row["seconds"] for way, row in rows.items()}
    ratios = {f"{kind}_over_torch": time_of[f"{kind} beam"] / time_of["torch beam"] for kind in PRECISIONS}
    return {"ratios": ratios, "utterances": len(ids), "ways": rows}


if __name__ == "__main__":
    main()
