"""What .importlinter cannot see: modules that are imported by a string."""

import re
from pathlib import Path

import sharpi

PACKAGE = Path(sharpi.__file__).parent


def test_only_devices_and_commands_are_imported_by_a_string() -> None:
    """torch and CuPy are, in sharpi/device alone; so are the commands, each when it is wanted."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\b(import_module|__import__)\(", path.read_text("utf-8"))
    }
    assert found == {"device/gpu.py", "device/cuda.py", "cli/commands/table.py"}
