"""Finding the best token sequences: beam and greedy search, competitors for training."""
