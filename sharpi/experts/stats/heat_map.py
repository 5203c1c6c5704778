"""Computes a heat map of how often each expert was used, and draws it as a PNG."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpi.errors import UsageError
from sharpi.experts.stats.stats import ExpertStats

HOTTEST = 4.0  # multiples of the even share; higher values have the same colour
_INCHES_PER_EXPERT, _INCHES_PER_LAYER = 0.12, 0.22


def heats(stats: ExpertStats) -> NDArray[np.float64]:
    """Returns uses (layers, experts) in times of the layer's mean; NaN in unused layers."""
    uses = np.array([layer.uses for layer in stats.layers], np.float64)
    uses = uses.reshape(len(stats.layers), stats.num_experts)
    totals = uses.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(uses / totals * stats.num_experts)


def fold(values: NDArray[np.float64], width: int) -> tuple[NDArray[np.float64], int]:
    """Returns maxima of adjacent columns, at most `width`, and how many columns one covers."""
    layers, experts = values.shape
    together = max(1, -(-experts // width))
    padding = -experts % together
    padded = np.pad(values, ((0, 0), (0, padding)), constant_values=-np.inf)
    return padded.reshape(layers, -1, together).max(axis=2), together


def save_png(path: Path, stats: ExpertStats) -> None:
    """Draws the heat map as a PNG; raises UsageError without matplotlib, or if it cannot."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--png needs matplotlib; run `pip install matplotlib`") from None
    width = 2.5 + _INCHES_PER_EXPERT * max(stats.num_experts, 24)
    height = 1.5 + _INCHES_PER_LAYER * max(len(stats.layers), 4)
    figure = Figure(figsize=(min(width, 40), min(height, 40)), layout="constrained")
    _draw(figure, stats)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise UsageError(f"--png {path}: cannot be written ({error.strerror})") from None


def _draw(figure: Any, stats: ExpertStats) -> None:
    axes = figure.add_subplot()
    image = axes.imshow(
        heats(stats), aspect="auto", cmap="inferno", vmin=0, vmax=HOTTEST, interpolation="nearest"
    )
    axes.set_xlabel("expert")
    axes.set_ylabel("layer")
    rows = range(0, len(stats.layers), max(1, len(stats.layers) // 24))
    axes.set_yticks(list(rows), [str(stats.layers[row].layer) for row in rows])
    axes.set_title(f"Uses of experts, {stats.num_tokens} tokens\n{stats.model}", fontsize=10)
    bar = figure.colorbar(image, extend="max")
    bar.set_label("times the even share")
