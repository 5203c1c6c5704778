"""TraceWriter: records routes while a model runs, in an .npz file that trace.py reads."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sharpi.errors import TraceFileError
from sharpi.system.files import write_atomically
from sharpi.system.process import Closing


class TraceWriter(Closing):
    """Collects the routes of generations, and writes all of them on `close`, atomically.

    The file has the arrays `experts`, `lengths`, `num_experts` and `expert_bytes`. It also has
    `probabilities` (tokens, layers, experts) float16, `token_ids` (tokens,) and `load_seconds`
    (tokens,), if the caller passes them for every token. Prompts are recorded with their batches.
    """

    def __init__(self, path: Path, num_experts: int, expert_bytes: Sequence[int] = ()) -> None:
        self.path = path
        self._fixed = {"num_experts": np.array(num_experts)}
        if expert_bytes:
            self._fixed["expert_bytes"] = np.array(expert_bytes, np.int64)
        self._id_type = np.uint8 if num_experts <= 256 else np.uint16
        self._lengths: list[int] = []
        self._prompts: dict[str, list[int]] = {"lengths": [], "batches": [], "positions": []}
        self._columns: dict[str, list[NDArray[np.generic]]] = {}

    def begin(self, prompt: Sequence[NDArray[np.integer]] = (), position: int = 0) -> None:
        """Starts a new generation; its decoded tokens are those passed to `append` afterwards.

        `prompt` has the routes (tokens, layers, k) of each step of the prompt. `position` is the
        position of the prompt's first token in its sequence; 0 means a new text.
        """
        batches = [len(step) for step in prompt]
        self._lengths.append(0)
        self._prompts["lengths"].append(sum(batches))
        self._prompts["batches"] += batches
        self._prompts["positions"].append(position)
        for step in prompt:
            self._columns.setdefault("prompt_experts", []).extend(step.astype(self._id_type))

    def append(
        self,
        routes: NDArray[np.integer],
        *,
        probabilities: NDArray[np.floating] | None = None,
        token_id: int | None = None,
        load_seconds: float | None = None,
    ) -> None:
        """Adds a token: routes (layers, k) and the router's probabilities (layers, experts)."""
        if not self._lengths:
            self.begin()
        self._lengths[-1] += 1
        self._add("experts", routes, self._id_type)
        self._add("probabilities", probabilities, np.float16)
        self._add("token_ids", token_id, np.int32)
        self._add("load_seconds", load_seconds, np.float32)

    def _add(self, column: str, value: object, kind: type[np.generic]) -> None:
        if value is not None:
            self._columns.setdefault(column, []).append(np.array(value, kind))

    def close(self) -> None:
        """Writes the file, or nothing if no token was recorded; raises TraceFileError."""
        tokens = sum(self._lengths)
        if not tokens:
            return
        complete = {
            name: np.stack(rows)
            for name, rows in self._columns.items()
            if len(rows) == tokens or name == "prompt_experts"
        }
        lengths = {"lengths": np.array(self._lengths, np.int64)}
        if "prompt_experts" in complete:
            for name, counts in self._prompts.items():
                lengths[f"prompt_{name}"] = np.array(counts, np.int64)
        self._save(self._fixed | complete | lengths)
        self._lengths.clear()

    def _save(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
        try:
            write_atomically(self.path, packed.getvalue())
        except OSError as error:
            raise TraceFileError(
                f"{self.path}: the trace cannot be written: {error.strerror or error}"
            ) from error
