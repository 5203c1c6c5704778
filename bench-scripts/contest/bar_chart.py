"""Draws the bar chart of vs_llama_cpp.py: sharpi's tokens/s divided by llama.cpp's."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt


def draw_ratios(record: dict[str, Any], path: Path) -> None:
    """Draws a bar for each test's median ratio, with its range, and a line at 1 for llama.cpp."""
    rows = record["rows"]
    ratios = [row["ratio"] for row in rows]
    below = [row["ratio"] - row["ratio_min"] for row in rows]
    above = [row["ratio_max"] - row["ratio"] for row in rows]
    figure, axes = plt.subplots(figsize=(max(5.0, 1.4 * len(rows) + 2), 4))
    bars = axes.bar([row["test"] for row in rows], ratios, yerr=[below, above], capsize=4)
    axes.bar_label(bars, labels=[_label(row) for row in rows], label_type="center", color="white")
    axes.axhline(1, color="black", linewidth=1)
    axes.set_ylabel("times llama.cpp's tokens per second")
    axes.set_title(f"{record['model']}, {record['threads']} threads")
    # One disturbed round may be an outlier; its whisker may leave the chart.
    highest = max(row["ratio_max"] for row in rows)
    axes.set_ylim(0, 1.1 * max(1, min(highest, 1.5 * max(ratios))))
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _label(row: dict[str, Any]) -> str:
    return f"{row['ratio']:.2f}\n{row['tokens_per_second']['sharpi']:.0f} tok/s"
