"""Makes artificial routes for benchmarks: uniform, skewed, and uneven ones.

Skewed routes repeat half of the time, as those of texts do. In uneven routes, layers use different
numbers of experts.
"""

import numpy as np
from numpy.typing import NDArray

KINDS = ("uniform", "skewed", "uneven")
_SKEW = 0.7  # experts fall off with their rank to this power
_LEAST_USED, _MOST_USED = 0.33, 0.63  # of a layer's experts, if uneven; the first uses all
_REPEAT = 2.5  # added to the log-odds of the experts of the token before


def make_routes(
    kind: str, tokens: int, layers: int, experts: int, k: int, seed: int = 7
) -> NDArray[np.int32]:
    """Returns routes (tokens, layers, k) of distinct experts, best first."""
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
    """Returns how many experts each layer uses, (layers,)."""
    shares = random.permutation(np.linspace(_LEAST_USED, _MOST_USED, layers - 1))
    return np.concatenate([[experts], (shares * experts).astype(np.int64)])
