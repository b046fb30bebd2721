"""Units that all parts share: what an id and a sample are; `framing` says what a frame is."""

# The label that leads to the next frame; all other ids are tokens.
BLANK = 0

# Samples per second of all audio.
SAMPLING_RATE = 16000
