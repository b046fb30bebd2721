"""Invariant: streams in one batch of the front end's graph get what each gets alone, whatever stands where nothing is
real, and the sums over wave outputs take each of them once.
"""

import numpy as np
import onnxruntime
import pytest
from small_moonshine import SMALL, small_moonshine

from transducer_gn.config import FrontEndConfig
from transducer_gn.export.moonshine_graph import write_front_end
from transducer_gn.model.moonshine_features import MoonshineFeatures

OUTPUTS = ["vectors", "new_sums", "new_memory"]
WIDTH = 2 * SMALL.dim // SMALL.heads


@pytest.fixture(scope="module")
def front_end() -> MoonshineFeatures:
    made = MoonshineFeatures(small_moonshine(), FrontEndConfig("moonshine-tiny", layers=(1, 3), chunk=320, right=80))
    # Settings count with the width of the published encoder; this one is smaller.
    made.standardisation.mean += 0.25
    made.standardisation.deviation *= 2
    return made


@pytest.fixture(scope="module")
def session(front_end: MoonshineFeatures) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(write_front_end(front_end).model({}).SerializeToString())


def inputs(samples: int, past: int, batch: int = 2) -> dict[str, np.ndarray]:
    """Random inputs of a batch, all of them real, of a stream's second chunk."""
    draw = np.random.default_rng(1)
    waves = (samples - 127) // 64 + 1
    numbers = {"waves": waves, "counted": 5, "first": 12, "frames": (samples - 511) // 384, "past": past}
    made = {name: np.full(batch, number) for name, number in numbers.items()}
    made["samples"] = draw.standard_normal((batch, samples)).astype(np.float32)
    made["sums"] = np.tile([[2400.0, 30.0, 900.0]], (batch, 1))
    shape = (batch, SMALL.layers, SMALL.heads, past, WIDTH)
    return made | {"memory": draw.standard_normal(shape).astype(np.float32)}


def test_a_shorter_stream_gets_what_it_gets_alone(
    session: onnxruntime.InferenceSession, front_end: MoonshineFeatures
) -> None:
    window, past, short, frames = front_end.context.longest_window, 9, 4, 6
    together = inputs(window, past)
    heard = 511 + 384 * frames
    waves = (heard - 127) // 64 + 1
    for name, number in {"past": short, "frames": frames, "waves": waves, "first": 30, "counted": 0}.items():
        together[name][1] = number
    alone = {name: value[1:].copy() for name, value in together.items()}
    alone["memory"] = alone["memory"][:, :, :, past - short :]
    alone["samples"][:, heard:] = 0
    # What is not real: before the memory, after the audio.
    together["memory"][1, :, :, : past - short] = 1000.0
    together["samples"][1, heard:] = 7.0
    vectors, sums, memory = session.run(OUTPUTS, together)
    own_vectors, own_sums, own_memory = session.run(OUTPUTS, alone)
    np.testing.assert_allclose(vectors[1, :frames], own_vectors[0, :frames], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums[1], own_sums[0], rtol=1e-12)
    np.testing.assert_allclose(memory[1, :, :, :frames], own_memory[0, :, :, :frames], rtol=1e-5, atol=1e-5)
    # The numbers of the frames matter, or the rotations would be none.
    alone["first"] += 1
    assert np.abs(session.run(OUTPUTS, alone)[0][0, :frames] - own_vectors[0, :frames]).max() > 1e-3


def test_each_wave_output_is_summed_once(session: onnxruntime.InferenceSession, front_end: MoonshineFeatures) -> None:
    made = inputs(front_end.context.longest_window, 0, batch=1)
    weight = front_end.encoder.wave.weight.detach().numpy()[:, 0]
    windows = np.lib.stride_tricks.sliding_window_view(made["samples"][0], 127)[::64]
    waves = np.tanh(windows @ weight.T)[5 : int(made["waves"][0])].astype(np.float64)
    expected = [2400 + waves.size, 30 + waves.sum(), 900 + (waves**2).sum()]
    np.testing.assert_allclose(session.run(["new_sums"], made)[0][0], expected, rtol=1e-6)
