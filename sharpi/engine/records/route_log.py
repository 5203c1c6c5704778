"""Writes the routes of a run to a trace file (RouteLog), or prints them (RoutePrinter)."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.model_part import SegmentRoutes, SlotTier
from sharpi.experts.trace.trace_writer import TraceWriter
from sharpi.model.config import ModelConfig
from sharpi.ops.cpu.program import IntArray
from sharpi.ops.interface import Scoring

if TYPE_CHECKING:
    from sharpi.engine.backends.expert_tier import ExpertTier


class RouteLog:
    """Writes a prompt and its answer together, even if steps held tokens of several sequences."""

    def __init__(self, path: Path, model: ModelConfig, expert_bytes: tuple[int, ...]) -> None:
        self._path = path
        self._writer = TraceWriter(path, model.num_experts, expert_bytes)
        self._scoring = model.expert_scoring
        self._generations: dict[int, _Generation] = {}
        self._num_decoded = 0
        self._stalled = 0.0

    def step(self, segments: list[SegmentRoutes], stalled: float) -> None:
        """Adds a step's routes; `stalled`: seconds waited for experts since the run's start."""
        waited = (stalled - self._stalled) / len(segments)
        self._stalled = stalled
        for each in segments:
            number = each.segment.sequence
            generation = self._generations.get(number) or _Generation()
            if generation.is_ended_by(each):
                self._write(generation)
                generation = _Generation()
            self._generations[number] = generation
            self._num_decoded += generation.add(each, waited)

    def _write(self, generation: "_Generation") -> None:
        if generation.prompt:
            self._writer.begin(generation.prompt, generation.position)
        for token in generation.tokens:
            self._writer.append(
                token.routes,
                probabilities=self._probabilities(token.router_logits),
                token_id=token.id,
                load_seconds=token.load_seconds,
            )

    def _probabilities(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Returns the router's scores of all experts, (layers, experts), 0 to 1."""
        if self._scoring is Scoring.SIGMOID:
            return np.asarray(1 / (1 + np.exp(-logits)), np.float32)
        e = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float32)

    def close(self) -> str | None:
        """Writes the file; returns a warning if nothing was decoded. Raises TraceFileError."""
        for generation in self._generations.values():
            self._write(generation)
        self._generations.clear()
        self._writer.close()
        if self._num_decoded:
            return None
        return f"no trace was written to {self._path}: no token was decoded"


class _Token(NamedTuple):
    id: int
    routes: IntArray  # (layers, used)
    router_logits: npt.NDArray[np.float32]  # (layers, experts)
    load_seconds: float


class _Generation:
    """The steps of a prompt, and the single tokens decoded after it."""

    def __init__(self) -> None:
        self.prompt: list[IntArray] = []  # of its steps, (tokens, layers, used) each
        self.position = 0
        self.tokens: list[_Token] = []
        self._next_position = -1

    def is_ended_by(self, step: SegmentRoutes) -> bool:
        follows = step.segment.position == self._next_position
        return not follows or (bool(self.tokens) and len(step.segment.ids) > 1)

    def add(self, step: SegmentRoutes, load_seconds: float) -> bool:
        """Adds a step; returns True if it was a decoded token."""
        segment = step.segment
        is_decoded = len(segment.ids) == 1 and segment.position == self._next_position
        if is_decoded:
            routes = np.stack([ids[0] for ids in step.routes])
            logits = np.stack([values[0] for values in step.router_logits])
            self.tokens.append(_Token(int(segment.ids[0]), routes, logits, load_seconds))
        else:
            if not self.prompt:
                self.position = segment.position
            self.prompt.append(np.stack(step.routes, axis=1))
        self._next_position = segment.position + len(segment.ids)
        return is_decoded


class RoutePrinter:
    """Prints the routes in layers `moe_layers`, and loads and pins in layers with slots."""

    def __init__(
        self, moe_layers: tuple[int, ...], tier: "ExpertTier | None", gpu: SlotTier | None
    ) -> None:
        self._moe_layers, self._tier, self._gpu = moe_layers, tier, gpu

    def step(self, segments: Sequence[SegmentRoutes], *, trims: bool) -> None:
        """Prints a step, token by token; `trims`: the last layer only computes outputs."""
        slots = self._slots()
        for segment in segments:
            for line in _lines(segment, self._moe_layers, trims=trims):
                print(f"{line[1]}{slots.get(line[0], '')}", file=sys.stderr)

    def _slots(self) -> dict[int, str]:
        """Returns each layer's number of loads and its pins as text, for layers that have slots."""
        if self._gpu is not None:
            states = self._gpu.loads_and_pins()
        elif self._tier is not None and not self._tier.is_mapped:
            counts = self._tier.layer_stats()
            states = {i: (counts[i].total.loads, list(counts[i].pinned)) for i in self._moe_layers}
        else:
            return {}
        return {
            layer: f" loads {loads} pinned {' '.join(map(str, pins)) or 'none'}"
            for layer, (loads, pins) in states.items()
        }


def _lines(
    of: SegmentRoutes, moe_layers: tuple[int, ...], *, trims: bool
) -> Iterator[tuple[int, str]]:
    """Yields, for each token and layer, the layer and a line with its experts."""
    segment = of.segment
    outputs = segment.outputs.tolist()
    for token in range(len(segment.ids)):
        for layer, ids in zip(moe_layers, of.routes, strict=True):
            row = token
            if trims and layer == moe_layers[-1]:
                if token not in outputs:
                    continue
                row = outputs.index(token)
            used = " ".join(map(str, np.asarray(ids[row]).tolist()))
            yield layer, f"moe: position {segment.position + token} layer {layer} experts {used}"
