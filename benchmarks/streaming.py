#!/usr/bin/env python3
"""How many real-time streams a machine holds, how long their text is delayed, and how much memory a stream takes.

  streaming.py --json result.json

The mini model (conf/mini.yaml, random weights with the blank made likely), chunks of 16 frames (640 ms), beam 4.
Streams send pieces of 80 ms, begun at random moments within a chunk. Their audio runs on a simulated clock, the work on
the real one: whatever is complete when a step begins is done in that step, and the *delay* of a chunk is the time from
its last sample until its text is known. A number of streams is *held* if the work takes less time than the audio and
the delay's 99th percentile is below one chunk, so that no backlog builds up.

  batched_over_one_by_one
      throughput with all streams in one batched step, over a step for each stream
  memory_growth_over_hour
      tensors that a stream holds after an hour of audio, over those after a minute
"""

import argparse
import random
import time
from dataclasses import dataclass

import torch
from measure import write_result

from transducer_gn.common.memory import held_bytes
from transducer_gn.common.units import SAMPLING_RATE as RATE
from transducer_gn.config import Config, RecognitionConfig, config_parser, read_config
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.recognition.stream import StreamingRecogniser
from transducer_gn.recognition.system import System

PIECE = 1280
BEAM = 4


class Pieces:
    """A stand-in for a token model: every piece is a word."""

    def __init__(self, vocabulary: int) -> None:
        self.pieces = [f"\u2581{number}" for number in range(vocabulary)]

    def decode(self, ids: list[int]) -> str:
        """The numbers of the pieces."""
        return " ".join(str(number) for number in ids)


def mini_model(config_path: str) -> tuple[Config, Transducer]:
    """The mini model's settings, and a model of its sizes with random weights."""
    torch.manual_seed(0)
    config, _ = read_config(config_parser("mini model"), ["--config", config_path])
    model = build_model(config.model).eval()
    with torch.no_grad():
        model.joiner.output.bias.value[0] += 4
    return config, model


def mini_recogniser(config_path: str) -> StreamingRecogniser:
    """A recogniser with the mini model's sizes."""
    config, model = mini_model(config_path)
    system = System("random", model, config, Pieces(config.model.vocab_size), alpha=1.0)
    return system.recogniser(RecognitionConfig(beam=BEAM))


@dataclass
class Load:
    """What recognising some streams in real time came to."""

    streams: int
    delays: list[float]
    busy_share: float

    def percentile(self, share: float) -> float:
        """The delay in seconds that `share` of the chunks do not exceed."""
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def held(self, chunk_seconds: float) -> bool:
        """Whether the streams were recognised as fast as they came."""
        return self.busy_share < 1 and self.percentile(0.99) < chunk_seconds


def real_time_load(recogniser: StreamingRecogniser, streams: int, seconds: float) -> Load:
    """Recognise `streams` streams for `seconds` of audio each, on a simulated clock."""
    randomness = random.Random(0)
    chunk_seconds = recogniser.chunk_seconds
    audio = 0.1 * torch.randn(RATE, generator=torch.Generator().manual_seed(0))
    opened = [recogniser.open() for _ in range(streams)]
    # The moment at which each stream's next piece is complete.
    due = [PIECE / RATE + randomness.random() * chunk_seconds for _ in opened]
    sent = [0] * streams
    now, busy, delays = 0.0, 0.0, []
    while now < seconds + chunk_seconds:
        now = max(now, min(due))
        began = time.perf_counter()
        completed_at = []
        for number, stream in enumerate(opened):
            was_ready = stream.is_ready
            while due[number] <= now:
                start = sent[number] * PIECE % (RATE - PIECE)
                stream.add(audio[start : start + PIECE])
                sent[number] += 1
                if stream.is_ready and not was_ready:
                    completed_at.append(due[number])
                    was_ready = True
                due[number] += PIECE / RATE
        recogniser.advance(opened)
        took = time.perf_counter() - began
        now += took
        busy += took
        delays += [now - moment for moment in completed_at]
    return Load(streams, delays, busy / now)


def most_streams(recogniser: StreamingRecogniser, seconds: float, limit: int = 4096) -> list[Load]:
    """Double the number of streams until they are too many, then look in between; all loads that were tried."""
    chunk_seconds = recogniser.chunk_seconds
    loads, held, failed, streams = [], 0, None, 8
    while streams <= limit and (failed is None or failed - held > max(1, held // 8)):
        loads.append(real_time_load(recogniser, streams, seconds))
        if loads[-1].held(chunk_seconds):
            held = streams
        else:
            failed = streams
        streams = 2 * streams if failed is None else (held + failed) // 2
        if streams == 0:
            break
    return loads


def throughput(recogniser: StreamingRecogniser, streams: int, seconds: float, together: bool) -> float:
    """Seconds of audio recognised per second of work, each stream's audio given at once."""
    opened = [recogniser.open() for _ in range(streams)]
    for stream in opened:
        stream.add(0.1 * torch.randn(int(seconds * RATE)))
    began = time.process_time()
    for group in [opened] if together else [[stream] for stream in opened]:
        recogniser.advance(group)
    return streams * seconds / (time.process_time() - began)


def memory_over_an_hour(recogniser: StreamingRecogniser, minutes: int) -> tuple[int, int]:
    """Largest bytes held within the second minute, and within the last."""
    stream = recogniser.open()
    audio = 0.1 * torch.randn(RATE * 60)
    by_minute = []
    for _ in range(minutes):
        sizes = []
        for piece in audio.split(RATE):
            stream.add(piece)
            recogniser.advance([stream])
            sizes.append(held_bytes(stream))
        by_minute.append(max(sizes))
    return by_minute[1], by_minute[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="file to write the result to")
    parser.add_argument("--config", default="conf/mini.yaml", help="settings of the model")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="processor threads")
    parser.add_argument("--seconds", type=float, default=4.0, help="audio per stream for each number of streams")
    parser.add_argument("--minutes", type=int, default=60, help="length of the stream whose memory is watched")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    recogniser = mini_recogniser(arguments.config)
    chunk_seconds = recogniser.chunk_seconds
    loads = most_streams(recogniser, arguments.seconds)
    best = max((load for load in loads if load.held(chunk_seconds)), key=lambda load: load.streams, default=loads[0])
    early, late = memory_over_an_hour(recogniser, arguments.minutes)
    alone = throughput(recogniser, 16, 10.0, together=False)
    together = throughput(recogniser, 16, 10.0, together=True)
    result = {
        "ratios": {"batched_over_one_by_one": together / alone, "memory_growth_over_hour": late / early},
        "threads": arguments.threads,
        "streams_held": best.streams if best.held(chunk_seconds) else 0,
        "delay_seconds": {"50%": best.percentile(0.5), "99%": best.percentile(0.99)},
        "loads": [
            {"streams": load.streams, "delay_99": load.percentile(0.99), "busy": load.busy_share} for load in loads
        ],
        "bytes_per_stream": late,
        "audio_seconds_per_processor_second": {"batched": together, "one by one": alone},
    }
    print(f"real-time streams held on {arguments.threads} threads: {result['streams_held']}")
    print(f"delay: median {best.percentile(0.5) * 1000:.0f} ms, 99th percentile {best.percentile(0.99) * 1000:.0f} ms")
    print(f"bytes per stream: {early} after a minute, {late} after {arguments.minutes}")
    for name, value in result["ratios"].items():
        print(f"{name:24} {value:8.2f}")
    write_result(arguments.json, result)


if __name__ == "__main__":
    main()
