"""From recordings on disk to batches of features and tokens. Imports nothing, so that a finished stage ends at once."""
