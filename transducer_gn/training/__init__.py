"""Training: objective, schedule, competitors, optimiser, checkpoints and the loop."""
