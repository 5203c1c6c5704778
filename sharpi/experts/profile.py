"""Stores how often each expert was used in earlier runs, so that a new run can fill its slots."""

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.errors import StatsFileError
from sharpi.system.files import write_or_warn

FORMAT = "sharpi expert profile"
VERSION = 1
_MOST_BYTES = 256 << 20  # a profile of 1,000 layers with 1,000 experts takes a fifth of it
_MOST_USES = 1 << 53  # the largest integer that every JSON reader keeps exactly


class ExpertProfile(Struct, frozen=True, eq=False):
    """How often each expert of a model was used in earlier runs; older runs count less."""

    model: str  # the file's name without its folder
    uses: NDArray[np.int64]  # (layers, experts)

    def ranked(self, layer: int) -> tuple[int, ...]:
        """Returns the ids of the layer's used experts, most used first; ties by lower id."""
        order = np.argsort(-self.uses[layer], kind="stable")
        return tuple(int(expert) for expert in order if self.uses[layer][expert])

    def merged(self, uses: NDArray[np.int64]) -> "ExpertProfile":
        """Returns a profile of half of the uses so far plus those of a newer run.

        `uses` (layers, experts) are the uses of the newer run.
        """
        return ExpertProfile(self.model, self.uses // 2 + uses)


def save_profile(path: Path, profile: ExpertProfile) -> str | None:
    """Writes the profile atomically; returns a warning if that fails, otherwise None."""
    plain = {"format": FORMAT, "version": VERSION, "model": profile.model}
    text = json.dumps(plain | {"uses": profile.uses.tolist()}, ensure_ascii=False) + "\n"
    return write_or_warn(path, text.encode(), "the expert profile was")


def load_profile(path: Path, model: str, num_layers: int, num_experts: int) -> ExpertProfile | None:
    """Reads a profile from a file; returns None if the file does not exist yet.

    Raises StatsFileError if the file is not a profile or belongs to another model.
    """
    try:
        plain = json.loads(_text(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StatsFileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise StatsFileError(_not_profile(path)) from None
    profile = _decode(path, plain)
    if profile.model != model or profile.uses.shape != (num_layers, num_experts):
        layers, experts = profile.uses.shape
        raise StatsFileError(
            f"{path}: a profile of {profile.model} ({layers} layers, {experts} experts), not of"
            f" {model} ({num_layers} layers, {num_experts} experts); name another --moe-profile"
        )
    return profile


def _text(path: Path) -> str:
    """Returns the text of a regular file of bounded size; raises OSError or StatsFileError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StatsFileError(f"{path} is not a regular file; name another --moe-profile")
    if status.st_size > _MOST_BYTES:
        raise StatsFileError(_not_profile(path))
    return path.read_text("utf-8")


def _decode(path: Path, plain: Any) -> ExpertProfile:
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise StatsFileError(_not_profile(path))
    if plain.get("version") != VERSION:
        raise StatsFileError(
            f"{path}: a profile of version {plain.get('version')!r}; this sharpi reads"
            f" version {VERSION}"
        )
    try:
        uses = np.array(plain["uses"], np.float64)
    except (KeyError, TypeError, ValueError):
        raise StatsFileError(_not_profile(path)) from None
    whole = uses.ndim == 2 and bool(np.all((uses >= 0) & (uses <= _MOST_USES) & (uses % 1 == 0)))
    if not whole or not isinstance(plain.get("model"), str):
        raise StatsFileError(_not_profile(path))
    return ExpertProfile(plain["model"], uses.astype(np.int64))


def _not_profile(path: Path) -> str:
    return f"{path}: holds no expert profile; remove it, or name another --moe-profile"
