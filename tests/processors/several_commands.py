"""Runs several commands of sharpi in one process, whose start takes an emulator most of the time.

    several_commands.py TARGET < COMMANDS

COMMANDS is a JSON list of argument lists; TARGET becomes a list of exit codes and outputs. Then the
process becomes `sharpi serve`.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from sharpi.cli.main import main
from sharpi.cli.start import main as start
from sharpi.hardware import rates
from sharpi.ops.cpu import machine_limits

# An emulator takes seconds for the samples of a rate, and no test asks how high the rate is.
rates.SAMPLE_BYTES = rates.TRIAL_BYTES = 4 << 20
machine_limits.LEAST_BYTES_A_TRY, machine_limits.SECONDS_A_READ = 4 << 20, 0.01


def run(arguments: list[str]) -> tuple[int, str]:
    """Returns the exit code of a command, and what it wrote to the standard output."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            code = main(arguments)
            sys.stdout.flush()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return code, file.read().decode()


if __name__ == "__main__":
    results = [run(each) for each in json.load(sys.stdin)]
    Path(sys.argv[1]).write_text(json.dumps(results))
    sys.argv[1:] = ["serve", "--port", "0"]
    sys.exit(start())
