"""How long an update would take on a GPU, PREDICTED from what it dispatches. Nothing here has been measured on one.

A part of an update takes as long as the slower of two that work side by side:

    host      launches x `launch` + waits x `wait`
    device    for each operation the longest of  kernels x `floor`,  bytes / `bandwidth`,  multiplications / `rate`

and an update takes the sum of its parts. Where frames of a search are replayed as graphs, the host pays `replay` for
each graph, and the device `floor` for each kernel. Reading data, logging, and adding up gradients over GPUs are left
out; they cost local and global updates the same.
"""

from dataclasses import dataclass

from launch_counter import Part


@dataclass(frozen=True)
class Machine:
    """A GPU with its host; all constants of the prediction.

    Attributes:
        launch: seconds of the host for one operation. Upstream reports for eager torch range from 5 to 10 microseconds
        wait: seconds from a request for a value to its arrival: what about three launches take
        replay: seconds of the host to replay a graph
        floor: seconds of the device for the smallest kernel, launched back to back
        bandwidth: bytes per second: the data sheet's, less a fifth
        rate: multiplications with additions per second in float32: half the data sheet's floating-point operations,
            less three tenths. TF32 is not used: torch leaves it off for matrix products
    """

    launch: float
    wait: float
    replay: float
    floor: float
    bandwidth: float
    rate: float


MACHINES = {
    # NVIDIA's data sheets: V100 SXM2 900 GB/s, 15.7 Tflop/s in float32; A100 SXM 40 GB 1555 GB/s, 19.5 Tflop/s.
    "V100": Machine(6.5e-6, 20e-6, 10e-6, 2.5e-6, 0.8 * 900e9, 0.7 * 15.7e12 / 2),
    "A100": Machine(6.5e-6, 20e-6, 10e-6, 2e-6, 0.8 * 1555e9, 0.7 * 19.5e12 / 2),
}
# 960 hours at three speeds, and the paper's eight GPUs.
TRAINING_SECONDS, GPUS = 2902.6 * 3600, 8
# What the paper reports for an epoch on eight V100s: local with batches of 180 s, global with batches of 40 s.
PAPERS_HOURS = {"local": 2 + 20 / 60, "global": 20.5}


def predicted_seconds(part: Part, machine: Machine, graphs: float = 0.0) -> float:
    """Predicted seconds of a part; `graphs` is how many graphs its operations are replayed as, if any."""
    device = sum(
        max(x.kernels * machine.floor, x.bytes / machine.bandwidth, x.multiplications / machine.rate)
        for x in part.operations
    )
    host = graphs * machine.replay if graphs else len(part.operations) * machine.launch
    return part.share * max(host + part.waits.total() * machine.wait, device)


def predicted_hours(step_seconds: float, batch_seconds: float) -> float:
    """Predicted hours of an epoch of updates that take so long, each on so many seconds of audio per GPU."""
    return step_seconds * TRAINING_SECONDS / (GPUS * batch_seconds) / 3600
