"""A model whose later layers run as on other machines: late, in order, from messages alone."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from sharpi.engine.backends.cpu_part import CpuPart
from sharpi.engine.backends.draft_head import HeadPart
from sharpi.engine.backends.model_part import StepOfPart, Values
from sharpi.engine.backends.recorded_part import ModelMemory, PartModel
from sharpi.engine.cluster.step_message import read_step, step_body
from sharpi.engine.engine import Engine
from sharpi.engine.runner import Runner
from sharpi.engine.scheduling.drafting import Drafting
from sharpi.model.weights import load_weights
from sharpi.tiers.facts import read_facts
from sharpi.tiers.layer_division import first_layers


class LateLayers:
    """Runs its steps only when somebody waits for the results, as a slow machine would."""

    device = gpu_tier = None
    splits_steps = False
    progress = 0.0
    is_ahead = False

    def __init__(self, part: CpuPart, num_ranks: int, width: int) -> None:
        self.part = self._part = part
        self.num_ranks, self._width = num_ranks, width
        self._orders: deque[tuple[int | None, Callable[[], Values | None]]] = deque()
        self._number, self._wanted = 0, set[int]()
        self._done: dict[int, Values] = {}
        self.most_wanted = self.num_checks_beside_others = 0

    max_tokens = property(lambda self: self._part.max_tokens)
    routes = router_logits = property(lambda self: [])

    def send(self, step: StepOfPart, max_outputs: int) -> int | None:
        assert step.incoming is not None
        body = step_body(step, step.incoming, max_outputs)
        has_outputs = any(len(segment.outputs) for segment in step.segments)
        has_drafts = any(segment.num_drafts for segment in step.segments)
        self.num_checks_beside_others += has_drafts and bool(self._wanted)
        self._number += 1
        self._orders.append((self._number, lambda: self._run(body)))
        if not has_outputs:
            return None
        self._wanted.add(self._number)
        self.most_wanted = max(self.most_wanted, len(self._wanted))
        return self._number

    def _run(self, body: bytes) -> Values:
        return self._part.run(*read_step(body, self._width)).copy()

    def receive(self, number: int) -> Values:
        assert number in self._wanted
        while number not in self._done:
            own, order = self._orders.popleft()
            values = order()
            if own in self._wanted and values is not None:
                self._done[own] = values
        self._wanted.remove(number)
        return self._done.pop(number)

    def discard(self, number: int) -> None:
        self._wanted.discard(number)
        self._done.pop(number, None)

    def run(self, step: StepOfPart, max_outputs: int) -> Values:
        number = self.send(step, max_outputs)
        return np.zeros((0, self._width), np.float32) if number is None else self.receive(number)

    def copy_page(self, source: int, target: int) -> None:
        self._orders.append((None, lambda: self._part.cache.copy_page(source, target)))

    def drop_windows(self, page: int, **free: bool) -> None:
        self._orders.append((None, lambda: self._part.cache.drop_windows(page, **free)))

    def copy_state(self, source: int, target: int) -> None:
        self._orders.append((None, lambda: self._part.states.copy(source, target)))

    def interrupt(self, *, wanted: bool = True) -> None: ...

    def prepare(self) -> None: ...

    def close(self) -> None:
        self._part.close()


def remote_model(engine: Engine, num_ranks: int) -> SimpleNamespace:
    """Returns the engine's model with its later layers on a slow machine, for a Scheduler."""
    config, settings = engine.model_config, engine.runner.settings
    weights = load_weights(engine.file, config)
    first = first_layers(read_facts(engine.file, config).without_head)[1:][-1:] or [
        config.num_layers
    ]
    start, end = first[0], config.num_layers
    own, late, output = (
        CpuPart(
            PartModel(
                config,
                weights,
                settings,
                layers,
                embeds=layers.start == 0,
                has_output=layers.start == end,
                keeps_hidden=layers.start == end and config.has_head,
            )
        )
        for layers in (range(start), range(start, end), range(end, end))
    )
    remote = LateLayers(late, num_ranks, config.hidden_size)
    head = HeadPart(config, weights, settings, own.pool) if config.has_head else None
    parts: Any = [own, remote, output]
    memory = ModelMemory(
        parts, head and head.pages, parts[1], drops_windows=settings.window_pages > 0
    )
    runner = Runner(
        settings, weights.output.rows, parts, memory,
        has_states=bool(config.states), remote=parts[1], returns_hidden=head is not None,
    )  # fmt: skip
    return SimpleNamespace(
        config=engine.config, runner=runner, page_store=None, tokenizer=engine.tokenizer,
        proposer=lambda: Drafting(lambda: engine.speculator, runner, head, has_models=False),
        remote=remote, head=head,
    )  # fmt: skip
