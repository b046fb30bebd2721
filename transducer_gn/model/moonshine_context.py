"""Where Moonshine's frames lie in the audio, which chunk has them, and how 24 ms become 20: whole numbers of samples.

Three convolutions without padding make the frames. With windows of 127, 7 and 3 at steps of 64, 3 and 2:

    wave output k       sees samples        64 k to 64 k + 126
    second output j     sees wave outputs   3 j to 3 j + 6
    frame i             sees second outputs 2 i to 2 i + 2, so samples 384 i to 384 i + 894

A frame stands every 384 samples (24 ms) and is complete 895 samples (56 ms) after its beginning, so n samples have
(n - 511) // 384 frames. Chunk c is the audio from c * chunk to (c + 1) * chunk; it has those frames that become
complete in it. A chunk of 640 ms has 26 or 27, the very first one 25.

A chunk is computed once `right` more samples have arrived. Its block is its own frames and after them its look-ahead:
the frames that become complete in these samples. Look-ahead is a copy that serves this block alone, in all layers;
the same audio gives frames anew in the next block. So no frame ever depends on audio beyond its chunk's end + right,
whereas a mask that lets frames see ahead would add one look-ahead per layer.

Those who read the frames count in steps of 20 ms. Output k stands for the 20 ms that end at sample 320 (k + 1), and
frame i for its end, 384 i + 895: output k lies between the two frames whose ends are around its own, and is mixed of
them in proportion. At a chunk's end the later one does not exist yet; there, as before the first frame, the nearest
one is taken. n samples have n / 320 outputs, halves rounded up, as lhotse counts the frames of a recording.

Nothing here needs torch, so that a runtime without it can count as well.
"""

from dataclasses import dataclass

import numpy as np

from transducer_gn.common.errors import require
from transducer_gn.common.units import SAMPLING_RATE

# Window and step of the convolutions, each counted in outputs of the one before.
WAVE_WINDOW, WAVE_STEP = 127, 64
SECOND_WINDOW, SECOND_STEP = 7, 3
THIRD_WINDOW, THIRD_STEP = 3, 2
# The same of a whole frame, in samples.
FRAME_STEP = WAVE_STEP * SECOND_STEP * THIRD_STEP
FRAME_WINDOW = WAVE_STEP * (SECOND_STEP * (THIRD_WINDOW - 1) + SECOND_WINDOW - 1) + WAVE_WINDOW
# Samples from one output of the interpolation to the next.
OUTPUT_STEP = SAMPLING_RATE // 50


def windows(length: int, window: int, step: int) -> int:
    """Number of windows that fit into `length`, one every `step`."""
    return max(0, (length - window) // step + 1)


def wave_outputs(samples: int) -> int:
    """Outputs of the first convolution that so many samples complete."""
    return windows(samples, WAVE_WINDOW, WAVE_STEP)


def frames(samples: int) -> int:
    """Frames that so many samples complete."""
    return windows(samples, FRAME_WINDOW, FRAME_STEP)


def outputs(samples: int) -> int:
    """Steps of 20 ms of a whole utterance of so many samples; none if it is too short for a frame."""
    return (samples + OUTPUT_STEP // 2) // OUTPUT_STEP if frames(samples) else 0


@dataclass(frozen=True)
class Context:
    """How far frames see, in samples.

    Attributes:
        chunk: samples of a chunk, a multiple of 320 and at least 960; None for one chunk that is the whole utterance
        right: samples after a chunk's end that its frames see
        left: chunks before their own that frames see; None for all
    """

    chunk: int | None = None
    right: int = 0
    left: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is None:
            require(self.right == 0 and self.left is None, "context", "without chunks, frames see all there is")
            return
        require(
            self.chunk >= FRAME_WINDOW and self.chunk % OUTPUT_STEP == 0,
            "chunk",
            f"must be a multiple of {OUTPUT_STEP} samples (20 ms) and have a frame's {FRAME_WINDOW}, not {self.chunk}",
        )
        require(self.right >= 0, "right context", f"must be 0 or more, not {self.right}")
        require(self.left is None or self.left >= 0, "left context", f"must be 0 or more chunks, not {self.left}")

    @property
    def longest_window(self) -> int:
        """Samples from the beginning of a chunk's first frame to the end of what is heard; most that there can be."""
        if self.chunk is None:
            raise ValueError("without chunks there is no longest window")
        # The first frame is the first that is not complete at the end of the chunk before.
        return self.chunk + self.right + FRAME_WINDOW - 1

    def chunks(self, samples: int) -> int:
        """Chunks that an utterance of so many samples has, the last of which may be incomplete."""
        return min(samples, 1) if self.chunk is None else -(-samples // self.chunk)

    def end(self, number: int, samples: int) -> int:
        """Where chunk `number` of an utterance of so many samples ends; 0 for what is before the first chunk."""
        if number < 0:
            return 0
        return samples if self.chunk is None else min((number + 1) * self.chunk, samples)

    def heard(self, number: int, samples: int) -> int:
        """How many of an utterance's samples the frames of chunk `number` depend on."""
        return min(self.end(number, samples) + self.right, samples)

    def first_seen(self, number: int) -> int:
        """Number of the first frame that those of chunk `number` see, if the chunks before it are complete."""
        if self.chunk is None or self.left is None:
            return 0
        return frames(max(0, number - self.left) * self.chunk)

    def block(self, number: int, samples: int) -> "Block":
        """The frames of chunk `number` of an utterance of so many samples."""
        first, last = (frames(self.end(n, samples)) for n in (number - 1, number))
        return Block(first, last - first, frames(self.heard(number, samples)) - last)


FULL_CONTEXT = Context()


@dataclass(frozen=True)
class Block:
    """Frames that are computed together: numbers `first` to `first + own + ahead`, without the last.

    Attributes:
        first: number of the first one
        own: how many become complete in the chunk
        ahead: how many follow as look-ahead
    """

    first: int
    own: int
    ahead: int

    @property
    def size(self) -> int:
        """Frames in it."""
        return self.own + self.ahead


@dataclass(frozen=True)
class Mixture:
    """Of which frames outputs are mixed.

    Attributes:
        earlier: [K] number of the frame before each output
        later: [K] number of the frame after it
        share: [K] share of the later one
    """

    earlier: np.ndarray
    later: np.ndarray
    share: np.ndarray


def mixture(first: int, end: int, context: Context, samples: int) -> Mixture:
    """Of which frames the outputs from `first` up to `end` are mixed.

    Args:
        first: number of the first output
        end: number after the last output, above `first`
        context: what the frames see
        samples: length of the utterance, or of what of it is known if no chunk of these outputs goes beyond
    """
    number = np.arange(first, end)
    position = OUTPUT_STEP * (number + 1) - FRAME_WINDOW
    earlier = position // FRAME_STEP
    share = np.where(position < 0, 0.0, (position - FRAME_STEP * earlier) / FRAME_STEP)
    chunk = np.zeros_like(number) if context.chunk is None else number * OUTPUT_STEP // context.chunk
    lasts = [frames(context.end(c, samples)) - 1 for c in range(int(chunk[0]), int(chunk[-1]) + 1)]
    last = np.array(lasts)[chunk - chunk[0]]
    earlier = np.minimum(earlier.clip(min=0), last)
    return Mixture(earlier, np.minimum(earlier + 1, last), share)
