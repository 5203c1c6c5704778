"""Stores how often each expert was used in earlier runs, so that a new run can fill its slots."""

import json
import stat
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from sharpi.errors import StatsFileError
from sharpi.system.files import write_or_warn

FORMAT = "sharpi expert profile"
VERSION = 1
_MOST_BYTES = 256 << 20  # a profile of 1,000 layers with 1,000 experts takes a fifth of it


class ExpertProfile(Struct, frozen=True, eq=False):
    """How often each expert of a model was used in earlier runs; older runs count less."""

    model: str  # the file's name without its folder
    uses: NDArray[np.int64]  # (layers, experts)

    def ranked(self, layer: int) -> tuple[int, ...]:
        """Returns the ids of the layer's used experts, most used first; ties by lower id."""
        order = np.argsort(-self.uses[layer], kind="stable")
        return tuple(int(expert) for expert in order if self.uses[layer][expert])

    def merged(self, uses: NDArray[np.int64]) -> "ExpertProfile":
        """Returns half of the uses so far plus the `uses` (layers, experts) of a newer run."""
        return ExpertProfile(self.model, self.uses // 2 + uses)


def save_profile(path: Path, profile: ExpertProfile) -> str | None:
    """Writes the profile atomically; returns a warning if that fails, otherwise None."""
    plain = {"format": FORMAT, "version": VERSION, "model": profile.model}
    text = json.dumps(plain | {"uses": profile.uses.tolist()}, ensure_ascii=False) + "\n"
    return write_or_warn(path, text.encode(), "the expert profile was")


class _Head(Struct):
    """What tells a profile, of any version, from other files."""

    format: Literal["sharpi expert profile"]
    version: Any


class _Saved(_Head):
    """A profile of this version, as its file has it."""

    model: str
    uses: list[list[Annotated[int, Meta(ge=0, le=1 << 53)]]]  # what every JSON reader keeps exactly


def load_profile(path: Path, model: str, num_layers: int, num_experts: int) -> ExpertProfile | None:
    """Reads a profile, None if there is no file; raises StatsFileError for any other one."""
    try:
        data = _content(path)
        if (version := msgspec.json.decode(data, type=_Head).version) != VERSION:
            raise StatsFileError(
                f"{path}: a profile of version {version!r}; this sharpi reads version {VERSION}"
            )
        saved = msgspec.json.decode(data, type=_Saved)
        uses = np.array(saved.uses, np.int64)
        layers, experts = uses.shape
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StatsFileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise StatsFileError(_not_profile(path)) from None
    if saved.model != model or uses.shape != (num_layers, num_experts):
        raise StatsFileError(
            f"{path}: a profile of {saved.model} ({layers} layers, {experts} experts), not of"
            f" {model} ({num_layers} layers, {num_experts} experts); name another --moe-profile"
        )
    return ExpertProfile(model, uses)


def _content(path: Path) -> bytes:
    """Returns the content of a regular file of bounded size; raises OSError or StatsFileError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StatsFileError(f"{path} is not a regular file; name another --moe-profile")
    if status.st_size > _MOST_BYTES:
        raise StatsFileError(_not_profile(path))
    return path.read_bytes()


def _not_profile(path: Path) -> str:
    return f"{path}: holds no expert profile; remove it, or name another --moe-profile"
