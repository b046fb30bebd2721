"""Training on a CPU beside one busy process over training alone.

    python benchmarks/contention.py --json contention.json

Measured are updates of the mini model (conf/mini.yaml, batches of 60 s, local) with as many threads as there are cores,
in fresh processes that load torch as train.py does. The busy process is a loop, in a session of its own, as if started
from another terminal: Linux then gives it as much time as all of training. Rounds in turn; medians.

  beside_over_alone           as it is
  spinning_beside_over_alone  as OpenMP does it by itself: threads that wait for others spin
  alone_over_spinning_alone   what the difference costs while nobody else is there

`others` in the result says how many cores were taken by processes that have nothing to do with this; where it is not
near 0, alone was not alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

# The default of libgomp, which torch comes with.
SPINNING = {"GOMP_SPINCOUNT": "300000"}
HERE = Path(__file__).resolve()
# As train.py does: the command first, since how threads wait is settled when torch is loaded.
START = (
    "import runpy, sys; import transducer_gn.commands.train; sys.argv.pop(0); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
UTTERANCES, TOKENS = 6, 20


def train(limit: float) -> dict[str, float]:
    """Seconds per update in this process, over about `limit` seconds."""
    import torch
    from planted_step import CHUNK, LOCAL, configuration, random_batch

    from transducer_gn.training.clock import Clock
    from transducer_gn.training.distributed import World
    from transducer_gn.training.learner import Learner
    from transducer_gn.training.training_pass import Plan

    config = configuration(HERE.parents[1] / "conf" / "mini.yaml")
    learner, clock = Learner(config, World()), Clock(torch.device("cpu"))
    tokens = torch.randint(1, config.model.vocab_size, (UTTERANCES, TOKENS))
    batch = replace(random_batch(UTTERANCES, 10), tokens=tokens, token_lengths=torch.full((UTTERANCES,), TOKENS))
    learner.training_pass.train()
    updates, begin = -1, 0.0
    while updates < 1 or time.perf_counter() < begin + limit:
        if updates == 0:
            begin, used, everybody = time.perf_counter(), time.process_time(), busy_cores()
        learner.update([Plan(batch, CHUNK, None, seed=0)], LOCAL, 1.0, clock)
        updates += 1
    seconds = time.perf_counter() - begin
    others = (busy_cores() - everybody - (time.process_time() - used)) / seconds
    return {"seconds": seconds / updates, "updates": updates, "threads": torch.get_num_threads(), "others": others}


def busy_cores() -> float:
    """Seconds that all cores together have worked since the machine was started."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def run(limit: float, changes: dict[str, str], beside: bool) -> dict[str, float]:
    """Train in a fresh process, alone or beside a busy one."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"} | changes
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (HERE.parent, HERE.parents[1])))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) if beside else None
    try:
        command = [sys.executable, "-c", START, str(HERE), "--train", str(limit)]
        result = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    finally:
        if busy is not None:
            busy.kill()
            busy.wait()
    return json.loads(result.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the ratios and all measurements to this file")
    parser.add_argument("--repeats", type=int, default=3, help="rounds")
    parser.add_argument("--seconds", type=float, default=5.0, help="to train for in each process")
    parser.add_argument("--train", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train is not None:
        print(json.dumps(train(options.train)))
        return
    cases = {
        "alone": ({}, False),
        "beside": ({}, True),
        "spinning_alone": (SPINNING, False),
        "spinning_beside": (SPINNING, True),
    }
    measured: dict[str, list[dict]] = {name: [] for name in cases}
    for _ in range(options.repeats):
        for name, case in cases.items():
            measured[name].append(run(options.seconds, *case))
            print(
                f"{name:16} " + "  ".join(f"{key} {value:.2f}" for key, value in measured[name][-1].items()), flush=True
            )
    seconds = {name: statistics.median(each["seconds"] for each in own) for name, own in measured.items()}
    ratios = {
        "beside_over_alone": seconds["beside"] / seconds["alone"],
        "spinning_beside_over_alone": seconds["spinning_beside"] / seconds["spinning_alone"],
        "alone_over_spinning_alone": seconds["alone"] / seconds["spinning_alone"],
    }
    for name, value in ratios.items():
        print(f"  {name:28} {value:6.2f}")
    if options.json:
        from measure import write_result

        write_result(options.json, {"ratios": ratios, "measured": measured})


if __name__ == "__main__":
    main()
