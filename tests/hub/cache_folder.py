"""A cache folder as huggingface_hub leaves it, written without a hub."""

import hashlib
import os
from pathlib import Path


def write_model(
    folder: Path,
    repository: str,
    files: dict[str, bytes],
    commit: str = "a" * 40,
    ref: str | None = "main",
) -> Path:
    """Writes one revision with these files and returns its snapshot."""
    home = folder / ("models--" + repository.replace("/", "--"))
    snapshot = home / "snapshots" / commit
    for path, data in files.items():
        blob = home / "blobs" / hashlib.sha256(data).hexdigest()
        link = snapshot / path
        for each in (blob, link):
            each.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link.symlink_to(os.path.relpath(blob, link.parent))
    if ref is not None:
        (home / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (home / "refs" / ref).write_text(commit)
    return snapshot


def write_partial(folder: Path, repository: str, path: str, data: bytes) -> Path:
    """Writes what an interrupted download of `path` leaves."""
    home = folder / ("models--" + repository.replace("/", "--"))
    partial = home / "partial" / ("b" * 64) / path
    partial.parent.mkdir(parents=True)
    partial.write_bytes(data)
    return partial
