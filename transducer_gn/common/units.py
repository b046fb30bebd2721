"""Units that all parts share: what an id, a sample and a frame are."""

# The label that leads to the next frame; all other ids are tokens.
BLANK = 0

# Samples per second of all audio.
SAMPLING_RATE = 16000

# Seconds from one feature frame to the next.
FEATURE_SHIFT = 0.01

# Feature frames per encoder frame, and how many more than that an encoder frame sees.
SUBSAMPLING = 4
SUBSAMPLING_OVERLAP = 5

# Seconds from one encoder frame to the next.
FRAME_SHIFT = FEATURE_SHIFT * SUBSAMPLING


def encoder_frames(feature_frames: int) -> int:
    """Encoder frames of an utterance of so many feature frames; 0 for those shorter than 7."""
    return max(0, (feature_frames - 3) // SUBSAMPLING)
