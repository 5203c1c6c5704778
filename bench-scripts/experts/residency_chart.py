"""Draws the chart of cache_policies.py: hit rate by residency, with a line for each policy."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt


def draw_policies(rows: list[dict[str, Any]], num_experts: int, path: Path) -> None:
    """Draws a line for each policy except `static`; the line of `optimum` is dashed."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["policy"] != "static":
            lines.setdefault(row["variant"], []).append(row)
    figure, axes = plt.subplots(figsize=(8, 5.5))
    colours = plt.get_cmap("turbo")
    for index, (name, points) in enumerate(lines.items()):
        axes.plot(
            [100 * row["slots"] / num_experts for row in points],
            [100 * row["hit_rate"] for row in points],
            marker="o",
            markersize=4,
            color="black" if name == "optimum" else colours(index / len(lines)),
            linestyle="--" if name == "optimum" else "-",
            label="optimum without prefetch" if name == "optimum" else name,
        )
    axes.set_xlabel("experts with a slot, % of each layer's")
    axes.set_ylabel("used experts found in a slot, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)
