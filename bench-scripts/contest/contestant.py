"""Contestant: a worker process that runs a model with sharpi or llama.cpp, for comparisons.

A worker script replies to each JSON line on stdin with a JSON line on stdout. The first line has
the settings, each further line a `Task`. Between two tasks, the worker blocks on its stdin, so that
it does not disturb other workers.
"""

import json
import random
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from sharpi.errors import UsageError
from sharpi.gguf.reader import GgufFile
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.tokenizer.tokenizer import load_tokenizer
from sharpi.units import parse_size

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Settings:
    """The settings that a worker loads the model with.

    `variant` and `options`: further settings, which the worker script defines.
    """

    model: str
    num_threads: int
    context_size: int
    batch_size: int
    variant: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A timed task for a worker: token ids to compute in passes of `pass_size` tokens."""

    before: list[int]  # token ids that are computed first and not timed
    ids: list[int]
    pass_size: int


@dataclass(frozen=True)
class Timing:
    """A task's times in seconds, as its worker measured them."""

    seconds: float
    pass_seconds: list[float]
    counts: dict[str, float]  # increases during the task, by name


class Contestant:
    """One worker process.

    `description`: the worker's reply to the settings, such as the program's version. `launcher`: a
    command to which the worker's command is appended.
    """

    def __init__(
        self,
        name: str,
        python: str,
        worker: str,
        settings: Settings,
        launcher: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [*launcher, python, str(_FOLDER / worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.description = self._request(asdict(settings))

    def run(self, task: Task) -> Timing:
        """Lets the worker run a task; returns the times."""
        return Timing(**self._request(asdict(task)))

    def seconds(self, task: Task) -> float:
        """Lets the worker run a task; returns the seconds of all passes together."""
        return self.run(task).seconds

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise SystemExit(f"{self.name}: the worker is gone") from None
        reply = self._process.stdout.readline()
        if not reply:
            raise SystemExit(f"{self.name}: the worker ended ({self._end()})")
        return dict(json.loads(reply))

    def _end(self) -> str:
        code = self._process.wait()
        return "killed, as when memory runs out" if code == -signal.SIGKILL else f"code {code}"

    def close(self) -> None:
        """Closes the worker's stdin and waits until the worker ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def close_all(contestants: Sequence[Contestant]) -> None:
    """Ends all worker processes."""
    for contestant in contestants:
        contestant.close()


def token_ids(model: GgufFile, count: int, source: Path | None, seed: int = 1) -> list[int]:
    """Returns `count` token ids, random if `source` is None.

    `source`: a NumPy file of ids, or a text file to tokenize. Raises UsageError if the file has too
    few ids, or ids outside the model's vocabulary.
    """
    num_ids = model.tensors["token_embd.weight"].shape[0]
    if source is None:
        return random.Random(seed).choices(range(num_ids), k=count)
    ids = _read(model, source)[:count]
    if len(ids) < count:
        raise UsageError(f"{source}: {len(ids)} token ids, but {count} are to be computed")
    if min(ids) < 0 or max(ids) >= num_ids:
        raise UsageError(f"{source}: token ids must be 0..{num_ids - 1}, as the model has them")
    return ids


def _read(model: GgufFile, source: Path) -> list[int]:
    try:
        if source.suffix == ".npy":
            return [int(each) for each in np.load(source).ravel()]
        text = source.read_text()
        return load_tokenizer(model.metadata).encode(text, add_bos=True, parse_special=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{source}: no token ids or text can be read from it ({error})") from None


_SIZES = ("ram", "vram")
_TAKEN = ("model", "experts", "num_threads", "context_size")


def sharpi_options(texts: Iterable[str]) -> dict[str, Any]:
    """Returns the fields by name; those of ExpertConfig are in a dictionary "experts".

    `["ram=2GB", "policy=slru"]` becomes `{"ram": 2000000000, "experts": {"policy": "slru"}}`.
    Raises UsageError for a name that is no field of either class.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name in _names(RunConfig) and name not in _TAKEN:
            options[name] = _value(name, value)
        elif name in _names(ExpertConfig):
            options.setdefault("experts", {})[name] = _value(name, value)
        else:
            raise UsageError(f"--sharpi {text}: no such setting; write it like policy=slru")
    return options


def _names(config: type[Struct]) -> set[str]:
    return set(config.__struct_fields__)


def _value(name: str, text: str) -> Any:
    """Parses a size or a JSON value such as `8` or `false`; returns any other text unchanged."""
    if name in _SIZES:
        return parse_size(text)
    try:
        return json.loads(text)
    except ValueError:
        return text
