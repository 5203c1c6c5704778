"""Runs llama.cpp's llama-bench on the same file and GPU, with experts of some layers on the CPU.

The program is the one that LLAMA_BENCH names, or the one on the PATH; nothing is downloaded or
built. The number of layers with experts on the CPU is chosen so that the experts on the GPU have as
many bytes as sharpi's slots.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.check_step import Findings

PROGRAM = "llama-bench"
SHARES = (25, 50, 0)  # percent of the experts in VRAM
_PROMPTS, _DECODED, _BATCH = "512,2048", "128", "2048"
_SECONDS = 60.0  # of one run


def main() -> None:
    """Parses the command line and runs llama-bench, if it is installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--layers", type=int, required=True, help="of the model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="only looks for the program")
    options = parser.parse_args()
    findings, program = Findings(), find_program()
    if program is None or options.dry_run:
        findings.is_skipped = True
        findings.notes.append(f"no {PROGRAM} was found or run; set LLAMA_BENCH to one with CUDA")
    else:
        measure(findings, program, options.model, options.layers)
    sys.exit(findings.finish(options.json))


def find_program() -> str | None:
    """Returns the path of the program that LLAMA_BENCH names, or of llama-bench on the PATH."""
    return shutil.which(os.environ.get("LLAMA_BENCH") or PROGRAM)


def measure(findings: Findings, program: str, model: Path, layers: int) -> None:
    """Runs llama-bench for each share of experts on the GPU, and adds its rows to the figures."""
    findings.figures["rows"] = []
    for percent in SHARES:
        off_gpu = layers - round(layers * percent / 100)
        command = [
            *(program, "-m", str(model), "-ngl", "99", "--n-cpu-moe", str(off_gpu)),
            *("-p", _PROMPTS, "-n", _DECODED, "-b", _BATCH, "-ub", _BATCH, "-r", "3", "-o", "json"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            findings.notes.append(f"{percent} %: took longer than {_SECONDS:.0f} s")
            continue
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            findings.failures.append(f"{percent} %: {' / '.join(lines[-2:])}")
            return
        findings.figures["rows"] += read_rows(done.stdout, percent, off_gpu)


def read_rows(text: str, percent: int, off_gpu: int) -> list[dict[str, Any]]:
    """Returns a row for each test in llama-bench's JSON; raises ValueError for any other text."""
    return [
        {
            "percent": percent,
            "layers_off_gpu": off_gpu,
            "test": f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}",
            "tokens_per_second": row["avg_ts"],
            "backends": row.get("backends", ""),
        }
        for row in json.loads(text)
    ]


if __name__ == "__main__":
    main()
