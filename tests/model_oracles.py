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
        for sequence in [[], *sequences]:
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


def relative_attention(
    content_queries: np.ndarray,
    position_queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    position_weight: np.ndarray,
    visible: np.ndarray,
) -> np.ndarray:
    """One head, one utterance: queries [Q, E], keys and values [K, E], visible [Q, K]; gives [Q, E].

    `position_weight` [E, D] projects the sinusoids of the distance from query to key. Queries are the last Q of the
    K frames.
    """
    outputs = np.zeros_like(content_queries)
    offset = len(keys) - len(content_queries)
    for i in range(len(content_queries)):
        scores = {}
        for j in range(len(keys)):
            if visible[i, j]:
                position = position_weight @ sinusoid(offset + i - j, position_weight.shape[1])
                scores[j] = content_queries[i] @ keys[j] + position_queries[i] @ position
        total = sum(np.exp(score) for score in scores.values())
        for j, score in scores.items():
            outputs[i] += np.exp(score) / total * values[j]
    return outputs


def sinusoid(distance: int, dim: int) -> np.ndarray:
    """Sines at even places, cosines at odd ones, of the distance at falling rates."""
    vector = np.zeros(dim)
    for place in range(0, dim, 2):
        angle = distance * 10000.0 ** (-place / dim)
        vector[place], vector[place + 1] = np.sin(angle), np.cos(angle)
    return vector


def visible_to(chunk_size: int | None, left: int | None, i: int, j: int) -> bool:
    """Whether frame i sees frame j: from `left` frames before its chunk to the chunk's end."""
    if chunk_size is None:
        return True
    chunk_start = i // chunk_size * chunk_size
    first = 0 if left is None else chunk_start - left
    return first <= j < chunk_start + chunk_size


def subsampling(features: np.ndarray, convolutions: list[tuple[np.ndarray, np.ndarray, int, int]]) -> np.ndarray:
    """Convolutions over time and frequency with x sigmoid(x - 1) after each, loop by loop.

    `features` [T, F] without the zero frame on either side; weights [C', C, 3, 3], biases [C'], stride, and padding
    of the frequencies. Gives [T'', C * F''].
    """
    padded = np.pad(features, ((1, 1), (0, 0)))
    x = padded[None]
    for weight, bias, stride, padding in convolutions:
        x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
        rows, columns = (x.shape[1] - 3) // stride + 1, (x.shape[2] - 3) // stride + 1
        y = np.zeros((len(weight), rows, columns))
        for channel, row, column in np.ndindex(*y.shape):
            window = x[:, row * stride : row * stride + 3, column * stride : column * stride + 3]
            y[channel, row, column] = (window * weight[channel]).sum() + bias[channel]
        x = y * sigmoid(y - 1)
    return x.transpose(1, 2, 0).reshape(x.shape[1], -1)


def depthwise_convolution(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, future: int) -> np.ndarray:
    """Each channel of `x` [T, D] with its own `weight` [D, K], zeros outside, the last `future` taps in the future."""
    y = np.tile(bias, (len(x), 1))
    kernel = weight.shape[1]
    for t in range(len(x)):
        for tap in range(kernel):
            source = t + tap - (kernel - 1 - future)
            if 0 <= source < len(x):
                y[t] += weight[:, tap] * x[source]
    return y
