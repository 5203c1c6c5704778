"""RouteLog: the steps of a run as a trace file wants them, prompts and decoded tokens apart."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from sharpi.engine.model_part import StepRoutes
from sharpi.experts.trace_writer import TraceWriter
from sharpi.model.config import ModelConfig
from sharpi.ops.interface import Scoring
from sharpi.ops.program import IntArray


class RouteLog:
    """A step of several tokens, or one that does not follow the step before, belongs to a prompt;
    the single tokens after it are a generation."""

    def __init__(self, path: Path, model: ModelConfig, expert_bytes: tuple[int, ...]) -> None:
        self._path = path
        self._writer = TraceWriter(path, model.num_experts, expert_bytes)
        self._scoring = model.expert_scoring
        self._next_position = -1
        self._prompt: list[npt.NDArray[np.int32]] = []  # its steps, (tokens, layers, k) each
        self._prompt_position = 0
        self._num_decoded = 0
        self._stalled = 0.0

    def step(self, position: int, ids: IntArray, program: StepRoutes, stalled: float) -> None:
        """`stalled`: seconds spent waiting for experts since the start."""
        count, follows = len(ids), position == self._next_position
        if count > 1 or not follows:
            self._add_to_prompt(position, program, count, follows=follows)
        else:
            self._add_token(int(ids[0]), program, stalled - self._stalled)
        self._next_position, self._stalled = position + count, stalled

    def _add_to_prompt(
        self, position: int, program: StepRoutes, count: int, *, follows: bool
    ) -> None:
        if not follows:
            self._begin()  # the prompt before was given up, or scored
        if not self._prompt:
            self._prompt_position = position
        self._prompt.append(np.stack([ids[:count] for ids in program.routes], axis=1))

    def _add_token(self, token_id: int, program: StepRoutes, load_seconds: float) -> None:
        self._begin()
        self._num_decoded += 1
        logits = np.stack([each[0] for each in program.router_logits])
        self._writer.append(
            np.stack([ids[0] for ids in program.routes]),
            probabilities=self._probabilities(logits),
            token_id=token_id,
            load_seconds=load_seconds,
        )

    def _begin(self) -> None:
        """What was kept of a prompt becomes that of a generation, perhaps of no tokens."""
        if self._prompt:
            self._writer.begin(self._prompt, self._prompt_position)
            self._prompt = []

    def _probabilities(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The router's scores of all experts, (layers, experts), 0 to 1."""
        if self._scoring is Scoring.SIGMOID:
            return np.asarray(1 / (1 + np.exp(-logits)), np.float32)
        e = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float32)

    def close(self) -> str | None:
        """Writes the file; returns what to warn of where nothing was decoded.

        Raises TraceFileError where it cannot be written.
        """
        self._begin()
        self._writer.close()
        if self._num_decoded:
            return None
        return f"no trace was written to {self._path}: no token was decoded"
