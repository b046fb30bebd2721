"""Recognising with an exported system: numpy and onnxruntime, no torch."""
