"""Random routes like those of models: skewed, and similar from token to token."""

import numpy as np
from numpy.typing import NDArray


def skewed_routes(
    tokens: int, layers: int, experts: int, k: int, *, seed: int = 0
) -> NDArray[np.int32]:
    """Returns (tokens, layers, k), distinct within a row, with drifting popularity.

    A third of each route is kept for the next token.
    """
    random = np.random.default_rng(seed)
    liking = random.normal(0, 1.5, (layers, experts))
    routes = np.empty((tokens, layers, k), np.int32)
    previous = np.zeros((layers, experts))
    for token in range(tokens):
        liking += random.normal(0, 0.1, liking.shape)
        scores = liking + random.gumbel(size=liking.shape) + previous
        routes[token] = np.argsort(-scores, axis=1)[:, :k]
        previous = np.zeros((layers, experts))
        np.put_along_axis(previous, routes[token], 1.5, axis=1)
    return routes
