"""The lattice of a Transducer on plain tensors: weights at its points, sums over its paths, times on them.

A lattice point is (frame, prefix). From it one arc per label leads on: blank to the next frame with the same
prefix, a token to the same frame with a longer prefix. Weights are arbitrary reals in log space.
"""
