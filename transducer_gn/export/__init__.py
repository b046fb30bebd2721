"""A trained system as files that run without torch: ONNX graphs and what a runtime has to know about them."""
