"""Runs a fixed set of benchmarks three times and compares them with a saved baseline.

Every repeat is a new `sharpi bench` process, so that differences between starts (page placement,
the cores of threads) are part of the deviation. The exit code is 1 if a row is slower than the
baseline by more than `--limit` deviations and by more than 2 %. With a GPU, further rows measure
it: with all experts that fit, and with a quarter of a layer's experts in slots.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from sharpi.engine.placement.choice import is_there
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config

Figures = dict[str, dict[str, float]]  # "mean" and "deviation" of tokens/s by row

# Arguments of `sharpi bench`; a row's name is this name followed by the test's.
_RUNS = {
    "": ["-p", "512,128,32,4", "-n", "128"],
    "1 thread ": ["-p", "128", "-n", "64", "-t", "1"],
    "deep ": ["-p", "0", "-n", "64", "-d", "3968"],
}
_GPU_TEST = ["-p", "512,2048", "-n", "128"]
_MODES = ("auto", "stream", "load", "cpu")  # the miss modes
_QUARTER = 4
_SMALLEST_LOSS = 0.02  # three repeats may agree by luck, with a deviation near zero


def main() -> None:
    """Parses the command line, runs the benchmarks, and compares and saves the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--baseline", type=Path, help="figures of an earlier --save")
    parser.add_argument("--save", type=Path, help="write this run's figures")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=3.0, help="deviations that are a loss")
    options = parser.parse_args()
    baseline = read_baseline(options.baseline) if options.baseline else {}
    figures = measure(runs(options.model, has_gpu=is_there()), options.model, options.repeats)
    losses = [
        name
        for name, now in figures.items()
        if report(name, now, baseline.get(name), options.limit)
    ]
    if options.save:
        options.save.write_text(json.dumps(figures, indent=2) + "\n")
    if losses:
        sys.exit(f"slower than the baseline: {', '.join(losses)}")


def read_baseline(path: Path) -> Figures:
    """Reads the figures of an earlier run; exits with a message if the file is not readable."""
    try:
        figures: Figures = json.loads(path.read_text())
    except OSError as error:
        sys.exit(f"--baseline {path}: cannot be read ({error.strerror}); --save writes one")
    except ValueError:
        sys.exit(f"--baseline {path}: holds no figures; --save writes them")
    return figures


def runs(model: Path, *, has_gpu: bool) -> dict[str, list[str]]:
    """Returns the arguments of each `sharpi bench` run, by the prefix of its rows' names."""
    found = {name: [*arguments, "--device", "cpu"] for name, arguments in _RUNS.items()}
    if not has_gpu:
        print("no GPU: its rows are left out", file=sys.stderr)
        return found
    found["gpu "] = [*_GPU_TEST, "--device", "cuda"]
    with open_gguf(model) as file:
        slots = read_config(file).num_experts // _QUARTER
    for mode in _MODES if slots else ():
        flags = ["--device", "cuda", "--moe-slots", str(slots), "--moe-miss", mode]
        found[f"gpu 25 % {mode} "] = [*_GPU_TEST, *flags]
    return found


def measure(runs: dict[str, list[str]], model: Path, repeats: int) -> Figures:
    """Runs all benchmarks `repeats` times and returns mean and deviation of each row.

    Each repeat runs the complete set, so that a slow minute affects all rows alike.
    """
    samples: dict[str, list[float]] = {}
    for _ in range(repeats):
        for prefix, arguments in runs.items():
            for row in bench(model, arguments):
                samples.setdefault(prefix + row["test"], []).append(row["tokens_per_second"])
    return {name: summary(speeds) for name, speeds in samples.items()}


def bench(model: Path, arguments: list[str]) -> list[dict[str, Any]]:
    """Runs `sharpi bench` in a new process and returns its rows."""
    command = [sys.executable, "-m", "sharpi", "bench", str(model), "-r", "3", "--json"]
    output = subprocess.run([*command, *arguments], check=True, stdout=subprocess.PIPE).stdout
    return list(json.loads(output))


def summary(speeds: list[float]) -> dict[str, float]:
    deviation = statistics.stdev(speeds) if len(speeds) > 1 else 0.0
    return {"mean": statistics.mean(speeds), "deviation": deviation}


def report(name: str, now: dict[str, float], before: dict[str, float] | None, limit: float) -> bool:
    """Prints a row; returns whether it is slower than before by more than `limit` deviations.

    It must also be slower by more than 2 %. `before` is None without a baseline.
    """
    text = f"{name:<28}{now['mean']:>12.2f} ± {now['deviation']:<9.2f}"
    if before is None:
        print(text)
        return False
    distance = deviations_apart(now, before)
    change = now["mean"] / before["mean"] - 1
    is_loss = distance < -limit and change < -_SMALLEST_LOSS
    print(f"{text}{100 * change:>+8.1f} % {distance:>+8.1f} deviations{'  SLOWER' * is_loss}")
    return is_loss


def deviations_apart(now: dict[str, float], before: dict[str, float]) -> float:
    """Returns the difference of the two means, divided by their combined deviation."""
    together = math.hypot(now["deviation"], before["deviation"])
    difference = now["mean"] - before["mean"]
    return difference / together if together else math.copysign(math.inf, difference)


if __name__ == "__main__":
    main()
