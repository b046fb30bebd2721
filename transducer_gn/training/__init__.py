"""Training a globally normalised Transducer."""
