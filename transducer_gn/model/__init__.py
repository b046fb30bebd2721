"""The Transducer: encoder, predictor and joiner."""
