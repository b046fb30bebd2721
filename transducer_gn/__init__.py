"""Streaming Transducers trained without label bias: global normalisation for speech recognition."""
