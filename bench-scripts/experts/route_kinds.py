"""Generates artificial routes for benchmarks: uniform, skewed, or uneven.

In skewed routes, half of the experts repeat from token to token, as in real texts. In uneven
routes, layers use different numbers of their experts.
"""

import numpy as np
from numpy.typing import NDArray

KINDS = ("uniform", "skewed", "uneven")
_SKEW = 0.7  # an expert's probability falls with its rank to this power
# The share of a layer's experts that uneven routes use; the first layer uses all.
_LEAST_USED, _MOST_USED = 0.33, 0.63
_REPEAT = 2.5  # added to the log-odds of the experts of the previous token


def make_routes(
    kind: str, tokens: int, layers: int, experts: int, k: int, seed: int = 7
) -> NDArray[np.int32]:
    """Returns routes (tokens, layers, k) of one of KINDS, with distinct experts, best first."""
    random = np.random.default_rng(seed)
    is_skewed = kind == "skewed"
    ranks = np.stack([random.permutation(experts) for _ in range(layers)])
    popular = -_SKEW * np.log(1.0 + ranks) * is_skewed
    if kind == "uneven":
        popular[ranks >= _used(layers, experts, random)[:, None]] = -np.inf
    routes = np.empty((tokens, layers, k), np.int32)
    repeated = np.zeros((layers, experts))
    for token in range(tokens):
        # The largest of log-odds plus Gumbel noise are a draw without replacement.
        scores = popular + repeated + random.gumbel(size=(layers, experts))
        routes[token] = np.argsort(-scores, axis=1)[:, :k]
        repeated[:] = 0
        np.put_along_axis(repeated, routes[token], _REPEAT * is_skewed, axis=1)
    return routes


def _used(layers: int, experts: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Returns the number of experts that each layer uses in uneven routes, (layers,)."""
    shares = random.permutation(np.linspace(_LEAST_USED, _MOST_USED, layers - 1))
    return np.concatenate([[experts], (shares * experts).astype(np.int64)])
