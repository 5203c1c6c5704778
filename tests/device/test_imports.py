"""Checks imports that .importlinter cannot see: modules that are imported by a string."""

import re
from pathlib import Path

import sharpi

PACKAGE = Path(sharpi.__file__).parent


def test_only_devices_and_commands_are_imported_by_a_string() -> None:
    """Devices import CuPy and torch by name, a cluster torch, and the command line commands."""
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\b(import_module|__import__)\(", path.read_text("utf-8"))
    }
    assert found == {
        "device/gpu.py",
        "cluster/group.py",
        "cli/program.py",
    }
