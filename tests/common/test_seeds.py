"""Invariant: a seed is the same on every machine and differs with every part of what it is for."""

from transducer_gn.common.seeds import stable_seed


def test_seeds_depend_on_every_part_of_an_identity():
    seeds = {stable_seed(*identity) for identity in [("a", 1), ("a", 2), ("b", 1), ("a", "1"), ("a1",), (1, "a")]}
    assert len(seeds) == 6
    assert stable_seed("chapter", 0) == 6990546581963415230
