#!/usr/bin/env python3
"""What the live server holds, through real sockets: equal texts, delays, clients that misbehave, memory, refusals.

  serving.py --json result.json
  serving.py --checkpoint exp/mini/alpha-0.3 --data-dir data/mini --json result.json

Server and clients share this machine; all traffic is local. Without a checkpoint: the mini model (conf/mini.yaml, with
random weights, the blank made likely) and made-up sounds; with one and its data, sentences of the test set. Beam 4.

  unequal_texts_at_N      share of N connections at a time whose text is not byte for byte that of decode.py's search
                          over the whole utterance under the same chunk
  delay_p99_over_chunk    99th percentile of the delay from the moment at which a chunk was complete until its text was
                          back at the client, over the chunk's length, at the highest load of --loads that is held:
                          one at which it is below 1 and every text comes
  disturbed               share of honest streams that got another text, or none, while others dropped out, came again
                          and again, fell silent, did not read, sent audio in bursts, or garbage
  unequal_to_decoded      share of all utterances of decode.py's --decoded results, sent --at-a-time together, whose
                          text is not the one that stands there; part "decoded"
  memory_growth           resident memory of both processes after --minutes of audio in one stream, over that after a
                          tenth of it. The audio's clock is simulated: it comes as fast as it is recognised
  refused                 share of five things that were as they must be: a page of another origin and a message of
                          1 GB are refused; --crowd connections that say nothing are turned away, or cut off where
                          there was room for them; a stream goes on meanwhile, and another is served afterwards
"""

import argparse
import asyncio
import contextlib
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import serving_clients as clients
import torch
from lhotse.cut import Cut
from measure import write_result
from streaming import mini_model

from transducer_gn.common.errors import UserError
from transducer_gn.common.units import SAMPLING_RATE as RATE
from transducer_gn.config import EVERYDAY
from transducer_gn.data.features import fbank
from transducer_gn.data.prepared import PreparedData
from transducer_gn.data.tokenizer import train_tokenizer
from transducer_gn.evaluation.results import read_results
from transducer_gn.recognition.averaging import RunningAverage
from transducer_gn.recognition.checkpoint import Checkpoint, Progress, TrainingState
from transducer_gn.recognition.system import System, load
from transducer_gn.search.beam import beam_search
from transducer_gn.serving.sentences import read_sentences, sentence_of

REPOSITORY = Path(__file__).resolve().parents[1]
ROOM = 500
AHEAD = 15.0


def write_random(path: Path, config_path: str) -> None:
    """A checkpoint of the mini model's size with random weights."""
    config, model = mini_model(config_path)
    randomness = np.random.default_rng(0)
    letters = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    words = ["".join(randomness.choice(letters, randomness.integers(2, 8))) for _ in range(2000)]
    lines = [" ".join(words[start : start + 8]) for start in range(0, len(words), 8)]
    tokenizer = train_tokenizer(lines, config.model.vocab_size)
    state = TrainingState({}, {}, {}, {}, {}, [], [])
    average = RunningAverage(model).state_dict()
    Checkpoint(config, Progress(epoch=1), model.state_dict(), average, tokenizer.model, state).save(path)


def sounds(count: int) -> list[np.ndarray]:
    """Made-up audio: sweeps and noise of a few seconds, 16 bits."""
    randomness = np.random.default_rng(0)
    made = []
    for number in range(count):
        time_axis = np.arange(int(RATE * (2 + 0.25 * number))) / RATE
        sweep = np.sin(2 * np.pi * (150 + 60 * number) * time_axis * (1 + 0.4 * np.sin(2 * time_axis)))
        noisy = 6000 * sweep * (1 + np.sin(9 * time_axis)) + 600 * randomness.standard_normal(len(time_axis))
        made.append(np.rint(noisy).clip(-32768, 32767).astype("<i2"))
    return made


@torch.no_grad()
def decoded(system: System, samples: np.ndarray) -> str:
    """The text of a search over the whole utterance under the system's chunks, as decode.py computes it."""
    features = torch.as_tensor(fbank().extract(samples.astype(np.float32)[None] / 32768, RATE))
    encoded = system.model.encoder(features[None], torch.tensor([len(features)]), system.chunk(EVERYDAY))
    most = system.tokens_per_frame(EVERYDAY)
    found = beam_search(system.model, *encoded, EVERYDAY.beam, 1, system.alpha, most)
    return system.tokenizer.decode(found.tokens[0][0])


class Server:
    """A server that runs; its port and its processes."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.process, self.port = process, port

    def resident(self) -> int:
        """Bytes of its processes in memory."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in (self.process.pid, *children)]
        return sum(pages) * resource.getpagesize()


@contextlib.contextmanager
def serving(checkpoint: Path, *flags: str) -> Iterator[Server]:
    """A server in processes of its own, which must end well."""
    code = "from transducer_gn.commands.console import main; main()"
    fixed = ["--port", "0", "--streams", "2000", "--connections", str(ROOM), "--ahead", str(AHEAD + 5)]
    command = [sys.executable, "-c", code, "serve", "--checkpoint", str(checkpoint), *fixed, *flags]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        found = re.search(r":(\d+)/", process.stdout.readline())
        if found is None:
            raise UserError("the server did not begin")
        try:
            yield Server(process, int(found[1]))
        finally:
            process.terminate()
            if process.wait(300) != 0:
                print("the server did not end well", file=sys.stderr)


async def unequal_share(port: int, audio: list[np.ndarray], texts: list[str], count: int) -> float:
    """Share of `count` connections at a time whose text is another than it should be."""
    chosen = [number % len(audio) for number in range(count if count > 1 else len(audio))]
    if count == 1:
        found = [await clients.at_once(port, audio[number], AHEAD) for number in chosen]
    else:
        found = await asyncio.gather(*(clients.at_once(port, audio[number], AHEAD) for number in chosen))
    wrong = [number for number, text in zip(chosen, found, strict=True) if text != texts[number]]
    return len(wrong) / len(chosen)


async def unequal_to_decoded(port: int, cuts: list[Cut], texts: dict[str, str], at_a_time: int) -> list[str]:
    """Utterances of which the server makes another text, so many sent at a time."""
    room = asyncio.Semaphore(at_a_time)

    async def differs(cut: Cut) -> bool:
        async with room:
            samples = np.frombuffer(sentence_of(cut).samples, dtype="<i2")
            return await clients.at_once(port, samples, AHEAD) != texts[cut.id]

    wrong = await asyncio.gather(*map(differs, cuts))
    return [cut.id for cut, different in zip(cuts, wrong, strict=True) if different]


def against_decoded(flags: argparse.Namespace, checkpoint: Path, result: dict) -> None:
    """Send all utterances of a file of results, under the settings that they were decoded with, into the result."""
    if flags.decoded is None or flags.data_dir is None:
        raise UserError("the part decoded needs --decoded and --data-dir")
    decoded = read_results(flags.decoded)
    texts = {each.id: " ".join(each.hypothesis) for each in decoded.utterances}
    cuts = [cut for cut in PreparedData(flags.data_dir).cuts(decoded.part) if cut.id in texts]
    beam = str(decoded.identity["settings"]["beam"])
    with serving(checkpoint, "--beam", beam, "--idle", "3600") as server:
        wrong = asyncio.run(unequal_to_decoded(server.port, cuts, texts, flags.at_a_time))
    result["decoded"] = {"results": flags.decoded.name, "utterances": len(cuts), "unequal": wrong}
    result["ratios"]["unequal_to_decoded"] = len(wrong) / len(cuts)


async def load_of(port: int, audio: list[np.ndarray], streams: int, seconds: float, chunk: float) -> dict:
    """Streams in real time, begun at moments spread over a chunk."""
    randomness = np.random.default_rng(streams)
    said = [np.resize(audio[number % len(audio)], int(seconds * RATE)) for number in range(streams)]
    waits = (1 + chunk * randomness.random(streams)).tolist()
    outcomes = await asyncio.gather(*(clients.honest(port, *each) for each in zip(said, waits, strict=True)))
    delays = sorted(delay for outcome in outcomes for delay in outcome.delays) or [float("inf")]
    whole = all(outcome.text is not None for outcome in outcomes)
    at = {share: delays[min(len(delays) - 1, int(share * len(delays)))] for share in (0.5, 0.99)}
    held = whole and at[0.99] < chunk
    return {"streams": streams, "delay_50": at[0.5], "delay_99": at[0.99], "held": held}


async def faults(port: int, audio: list[np.ndarray], texts: list[str], streams: int, each: int) -> dict:
    """Honest streams among clients of all other kinds, so many `each`; who was disturbed, and what became of others."""
    seconds = max(map(len, audio)) / RATE
    chosen = [number % len(audio) for number in range(streams)]
    good = [asyncio.create_task(clients.honest(port, audio[number], 0.5)) for number in chosen]
    others = []
    for number in range(each):
        samples = audio[number % len(audio)]
        others += [
            clients.dropped(port, samples),
            clients.returning(port, samples, AHEAD, seconds),
            clients.half_open(port, samples, seconds),
            clients.slow(port, samples, seconds),
            clients.bursting(port, samples, 600),
            clients.garbage(port, number),
        ]
    became = await asyncio.gather(*others, return_exceptions=True)
    outcomes = await asyncio.gather(*good)
    wrong = [outcome.text != texts[number] for number, outcome in zip(chosen, outcomes, strict=True)]
    kinds = ("dropped", "returning", "half open", "slow", "bursting", "garbage")
    return {
        "share": sum(wrong) / streams,
        "others": {kind: sorted({str(one) for one in became[place :: len(kinds)]}) for place, kind in enumerate(kinds)},
    }


async def refusals(port: int, audio: list[np.ndarray], texts: list[str], count: int) -> dict:
    """What must be refused, while an honest stream goes on; and whether another is served afterwards."""
    long = np.tile(audio[0], 3)
    meanwhile = asyncio.create_task(clients.honest(port, long))
    await asyncio.sleep(0.5)
    origin, message = await clients.foreign(port), await clients.giant(port)
    crowd = await clients.crowd(port, count)
    during, after = await meanwhile, await clients.honest(port, audio[0])
    done = [
        origin == 403,
        message == 1009,
        "served" not in crowd and crowd.get("turned away", 0) >= count - 4 * ROOM,
        during.text is not None,
        after.text == texts[0],
    ]
    return {"share": sum(done) / len(done), "origin": origin, "message": message, "crowd": crowd}


def memory(server: Server, audio: np.ndarray, minutes: float) -> list[int]:
    """Resident bytes of a server after each tenth of a stream of so many minutes."""
    sizes: list[int] = []

    def look() -> None:
        sizes.append(server.resident())
        print(f"  {len(sizes) * minutes / 10:g} minutes: {sizes[-1] / 1e6:.1f} MB", file=sys.stderr, flush=True)

    tenth = np.resize(audio, int(6 * minutes * RATE))
    asyncio.run(clients.endless(server.port, tenth, AHEAD, 10, look))
    return sizes


def under_load(
    flags: argparse.Namespace, server: Server, audio: list[np.ndarray], texts: list[str], result: dict
) -> None:
    """What is asked for of texts, delays, faults and refusals, into the result."""
    parts, ratios, chunk = flags.parts.split(","), result["ratios"], result["chunk_seconds"]
    if "texts" in parts:
        for count in map(int, flags.counts.split(",")):
            ratios[f"unequal_texts_at_{count}"] = asyncio.run(unequal_share(server.port, audio, texts, count))
            print(f"texts at {count} connections compared", file=sys.stderr, flush=True)
    if "loads" in parts:
        result["loads"] = loads = []
        for streams in map(int, flags.loads.split(",")):
            loads.append(asyncio.run(load_of(server.port, audio, streams, flags.seconds, chunk)))
            print(loads[-1], file=sys.stderr, flush=True)
            if not loads[-1]["held"]:
                break
        best = max((load for load in loads if load["held"]), key=lambda load: load["streams"], default=loads[0])
        ratios["delay_p99_over_chunk"] = best["delay_99"] / chunk
        result["streams_held"] = best["streams"] if best["held"] else 0
    if "faults" in parts:
        result["faults"] = asyncio.run(faults(server.port, audio, texts, 2 * flags.others, flags.others))
        ratios["disturbed"] = result["faults"]["share"]
    if "refusals" in parts:
        result["refusals"] = asyncio.run(refusals(server.port, audio, texts, flags.crowd))
        ratios["refused"] = result["refusals"]["share"]


def measure(flags: argparse.Namespace, checkpoint: Path) -> dict:
    """All parts that are asked for."""
    system = load(checkpoint)
    audio = sounds(12)
    if flags.data_dir is not None:
        audio = [np.frombuffer(sentence.samples, dtype="<i2") for sentence in read_sentences(flags.data_dir)]
    texts = [decoded(system, samples) for samples in audio]
    chunk = system.recogniser().chunk_seconds
    ratios: dict[str, float] = {}
    result: dict = {"ratios": ratios, "chunk_seconds": chunk, "words": sum(len(text.split()) for text in texts)}
    parts = set(flags.parts.split(","))
    if "decoded" in parts:
        against_decoded(flags, checkpoint, result)
    if parts - {"memory", "decoded"}:
        with serving(checkpoint) as server:
            under_load(flags, server, audio, texts, result)
    if "memory" in parts:
        # However long this machine leaves a process waiting.
        with serving(checkpoint, "--idle", "3600") as server:
            result["resident_bytes"] = sizes = memory(server, np.concatenate(audio), flags.minutes)
        ratios["memory_growth"] = sizes[-1] / sizes[0]
    return result


def main(arguments: list[str] | None = None) -> dict:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the result to")
    parser.add_argument("--config", default=str(REPOSITORY / "conf" / "mini.yaml"), help="settings of the random model")
    parser.add_argument("--checkpoint", type=Path, help="a trained system instead")
    parser.add_argument("--data-dir", type=Path, help="what prepare.sh made: sentences instead of made-up sounds")
    parser.add_argument("--decoded", type=Path, help="results-*.json of decode.py, by beam search, of that checkpoint")
    parser.add_argument("--at-a-time", type=int, default=50, help="utterances of these that are sent at a time")
    parser.add_argument("--parts", default="texts,loads,faults,refusals,memory", help="what to measure")
    parser.add_argument("--counts", default="1,50,144", help="connections at which texts are compared")
    parser.add_argument("--loads", default="48,96,144,192", help="streams in real time to try, until too many")
    parser.add_argument("--seconds", type=float, default=8.0, help="audio of each of these")
    parser.add_argument("--others", type=int, default=8, help="clients of each other kind")
    parser.add_argument("--crowd", type=int, default=10000, help="connections that say nothing")
    parser.add_argument("--minutes", type=float, default=120.0, help="audio of the stream whose memory is watched")
    flags = parser.parse_args(arguments)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, flags.crowd + 500)), hard))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = flags.checkpoint
        if checkpoint is None:
            checkpoint = Path(folder) / "epoch-1.pt"
            write_random(checkpoint, flags.config)
        result = measure(flags, checkpoint)
    for name, value in result["ratios"].items():
        print(f"{name:24} {value:8.3f}")
    write_result(flags.json, result)
    return result


if __name__ == "__main__":
    main()
