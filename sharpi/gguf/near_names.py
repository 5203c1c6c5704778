"""Finds GGUF files with names similar to a missing one."""

from difflib import get_close_matches
from pathlib import Path

from sharpi.gguf.split_set import part_number

_MOST = 2


def near_names(path: Path) -> str:
    """Returns "; did you mean ...?" with similar names in the same folder; empty without any."""
    try:
        files = [each for each in path.parent.iterdir() if each.suffix.lower() == ".gguf"]
    except (OSError, ValueError):  # no such folder, or a NUL in the path
        return ""
    names = [each.name for each in files if part_number(each) is None]
    close = get_close_matches(path.name, names, n=_MOST, cutoff=0.7)
    meant = " or ".join(str(path.parent / name) for name in close)
    return f"; did you mean {meant}?" if close else ""
