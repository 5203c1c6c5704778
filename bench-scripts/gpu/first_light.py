"""First light on a GPU: the rungs of `sharpi doctor --gpu`, with a JSON file after each of them.

usage: PYTHONPATH=. python bench-scripts/gpu/first_light.py OUT.json [--only RUNG,...] [--dry]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.engines import device_opener

from sharpi.engine import first_light
from sharpi.engine.first_light import RUNG_SECONDS, RUNGS, climb, run_rung, to_json

_DRY_LOCKED_BYTES, _DRY_SECONDS = 1 << 20, 400


def main() -> int:
    """Runs all rungs, or the one rung of a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--only", help="names of rungs, parted by commas")
    parser.add_argument("--seconds", type=float, help="for each rung")
    parser.add_argument("--dry", action="store_true", help="on the emulator, without a GPU")
    parser.add_argument("--one", help="runs this rung in the present process")
    options = parser.parse_args()
    if options.one:
        if options.dry:
            first_light._LOCKED_BYTES, first_light._NUM_TOKENS = _DRY_LOCKED_BYTES, 4
        return run_rung(options.one, device_opener(options.dry))
    command = [sys.executable, __file__, str(options.output), *(["--dry"] * options.dry), "--one"]
    wanted = [r for r in RUNGS if not options.only or r.name in options.only.split(",")]
    results = []
    seconds = options.seconds or (_DRY_SECONDS if options.dry else RUNG_SECONDS)
    for result in climb(command, wanted, seconds):
        results.append(result)
        options.output.write_text(to_json(results) + "\n", encoding="utf-8")
        print("ok  " if result.is_passed else "FAIL", result.name, result.text, flush=True)
    return int(not all(result.is_passed for result in results))


if __name__ == "__main__":
    sys.exit(main())
