"""The mini corpus, made here, and all that only it has: blended sounds, twins, two readings of a sentence."""
