"""Slow, readable definitions in float64 numpy that tests of the model compare with."""

import numpy as np
from torch import Tensor


def array(tensor: Tensor) -> np.ndarray:
    """The values of a tensor in float64."""
    return tensor.detach().double().numpy()


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x)."""
    return 1 / (1 + np.exp(-x))


def lstm(weights: list[tuple[np.ndarray, np.ndarray, np.ndarray]], inputs: np.ndarray) -> np.ndarray:
    """Outputs [U, H] of an LSTM over `inputs` [U, D]; weights per layer: from input, from state, bias."""
    for from_input, from_state, bias in weights:
        size = from_state.shape[1]
        hidden = cell = np.zeros(size)
        outputs = []
        for x in inputs:
            gates = from_input @ x + from_state @ hidden + bias
            add, keep, candidate, show = (gates[i * size : (i + 1) * size] for i in range(4))
            cell = sigmoid(keep) * cell + sigmoid(add) * np.tanh(candidate)
            hidden = sigmoid(show) * np.tanh(cell)
            outputs.append(hidden)
        inputs = np.array(outputs)
    return inputs


def prefix_forest(batch: list[list[list[int]]]) -> tuple[list[int], list[int], list[int], list[tuple[int, ...]]]:
    """Parents, tokens, depths and prefixes of one tree per utterance over all prefixes of its sequences."""
    parents, tokens, depths, prefixes = [], [], [], []
    for sequences in batch:
        node_of = {}
        for sequence in [[]] + sequences:
            for length in range(len(sequence) + 1):
                prefix = tuple(sequence[:length])
                if prefix in node_of:
                    continue
                node_of[prefix] = len(parents)
                parents.append(node_of[prefix[:-1]] if prefix else -1)
                tokens.append(prefix[-1] if prefix else 0)
                depths.append(length)
                prefixes.append(prefix)
    return parents, tokens, depths, prefixes
