"""CacheFolder: the folder of a prompt cache, shared by processes, within a budget of bytes.

Each model has a subfolder, named by the key of model and arithmetic. Files whose names are not in
sharpi's format are neither counted nor removed.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from sharpi.engine.prompt_cache.record import DIGEST_BYTES, TEMPORARY, parse_name
from sharpi.errors import UsageError
from sharpi.system.files import write_atomically

ABOUT = "about.json"
_PREFIX = "model-"
_FOLDER = re.compile(rf"{_PREFIX}[0-9a-f]{{32}}")
_ANSWER = re.compile(r"answer-[0-9a-f]{32}\.ids")
_LOOKS = 20  # scans of the folder for other processes' files, per budget written
_ABANDONED_NS = 600 * 10**9  # a temporary file not written for so long is abandoned


class StoredFile(NamedTuple):
    """A file that counts towards the budget; instances sort by last use."""

    time_ns: int
    path: Path
    num_bytes: int


class ModelFolder(Struct, frozen=True):
    """One model's folder in the prompt cache, as a list of models shows it."""

    path: Path
    about: dict[str, Any]  # the facts in its about.json; empty if that cannot be read
    num_files: int
    num_bytes: int
    last_use_ns: int

    @property
    def key(self) -> str:
        """The key of model and arithmetic in hexadecimal."""
        return self.path.name.removeprefix(_PREFIX)


class CacheFolder:
    """A prompt cache's folder within `max_bytes`, made if need be, for its owner; or UsageError."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes
        self._num_bytes = 0  # at the last look, and what was added since
        self._until_look = 0  # bytes that may be added before the next look
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            raise UsageError(f"--prompt-cache {path}: it is a file, not a folder") from None
        except OSError as error:
            raise UsageError(f"--prompt-cache {path}: {error.strerror}") from error

    @property
    def is_writable(self) -> bool:
        """False if files cannot be added; existing files may still be readable."""
        return os.access(self.path, os.W_OK | os.X_OK)

    def of_model(self, key: bytes) -> Path:
        return self.path / f"{_PREFIX}{key.hex()}"

    def add_model(self, key: bytes, about: dict[str, Any]) -> None:
        """Creates a model's folder and writes `about`, facts for a list; raises OSError."""
        folder = self.of_model(key)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not (folder / ABOUT).exists():
            write_atomically(folder / ABOUT, json.dumps(about).encode())

    def make_room(self, num_bytes: int, time_ns: int) -> bool:
        """Removes the oldest files used before `time_ns`; returns True if `num_bytes` fit."""
        if self._until_look < num_bytes or self._num_bytes + num_bytes > self.max_bytes:
            self._num_bytes = self._evict(num_bytes, time_ns)
            self._until_look = self.max_bytes // _LOOKS
        if self._num_bytes + num_bytes > self.max_bytes:
            return False
        self._num_bytes += num_bytes
        self._until_look -= num_bytes
        return True

    def trim(self, time_ns: int) -> None:
        self._num_bytes = self._evict(0, time_ns)

    def _evict(self, num_bytes: int, time_ns: int) -> int:
        """Removes files as `make_room` does; returns the total bytes of those that are left."""
        files = sorted(self.files())
        total = sum(file.num_bytes for file in files)
        for file in files:
            if total + num_bytes <= self.max_bytes or file.time_ns >= time_ns:
                break
            with suppress(FileNotFoundError):
                file.path.unlink()
            total -= file.num_bytes
        return total

    def files(self) -> Iterator[StoredFile]:
        """Yields all files that count: records, tokens of answers, and temporary files."""
        for folder in self._model_folders():
            yield from _files(folder)

    def models(self) -> list[ModelFolder]:
        """Returns the models that have pages, the latest used first."""
        found = [_model_folder(path) for path in self._model_folders()]
        return sorted(found, key=lambda each: -each.last_use_ns)

    def remove(self, model: ModelFolder) -> None:
        """Removes the pages of a model; raises OSError."""
        for file in _files(model.path):
            file.path.unlink(missing_ok=True)
        (model.path / ABOUT).unlink(missing_ok=True)
        with suppress(OSError):  # a process that writes to it, or what is not sharpi's
            model.path.rmdir()

    def remove_abandoned(self) -> None:
        """Removes the temporary files of writers that were killed."""
        latest = time.time_ns() - _ABANDONED_NS
        for file in self.files():
            if file.path.name.startswith(TEMPORARY) and file.time_ns < latest:
                with suppress(OSError):
                    file.path.unlink()

    def _model_folders(self) -> list[Path]:
        with suppress(OSError), os.scandir(self.path) as entries:
            return [
                Path(entry.path)
                for entry in entries
                if _FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
        return []


def _files(folder: Path) -> Iterator[StoredFile]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not _is_counted(entry.name):
                continue
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    yield StoredFile(status.st_mtime_ns, Path(entry.path), status.st_size)


def _is_counted(name: str) -> bool:
    is_record = parse_name(name) is not None
    return is_record or name.startswith(TEMPORARY) or _ANSWER.fullmatch(name) is not None


def _model_folder(path: Path) -> ModelFolder:
    files = list(_files(path))
    return ModelFolder(
        path=path,
        about=_about(path / ABOUT),
        num_files=len(files),
        num_bytes=sum(file.num_bytes for file in files),
        last_use_ns=max((file.time_ns for file in files), default=_changed_ns(path)),
    )


def _changed_ns(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime_ns
    return 0


def _about(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        about = json.loads(path.read_bytes())
        return about if isinstance(about, dict) else {}
    return {}


def answer_file(text: str) -> str:
    """Returns the name of the file with an answer's tokens."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES)
    return f"answer-{digest.hexdigest()}.ids"


class AnswerIds:
    """The tokens of answers in one model's folder; I/O errors are ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, text: str, ids: Sequence[int]) -> None:
        """Writes the tokens of an answer to a file that `find` reads."""
        data = np.asarray(ids, np.int32).tobytes()
        with suppress(OSError):
            write_atomically(self._folder / answer_file(text), data + _digest(data))

    def find(self, text: str) -> list[int]:
        """Returns the tokens of an answer; an empty list if they were not stored."""
        path = self._folder / answer_file(text)
        with suppress(OSError, ValueError):
            content = path.read_bytes()
            data, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
            if _digest(data) == digest:
                os.utime(path)
                ids: list[int] = np.frombuffer(data, np.int32).tolist()
                return ids
        return []


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
