"""Replays routes as EmulatedTokens does, but also tries the mapped file in place of slots.

The page cache is emulated as an LRU list of experts. Its capacity is four fifths of the number of
slots, since read-ahead fills the rest. An expert that is not in the list costs the time of two
reads. The engine's FileTrial decides between slots and file.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from experts.emulated_tokens import Costs, EmulatedTokens
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.experts.file_trial import ExpertSource, FileTrial
from sharpi.experts.policy_settings import PolicySettings
from sharpi.experts.slot_window import WindowCounts

_FILLED = 0.8  # of the page cache
_FAULT_COST = 2.0  # reads: one thread waits, and what is read ahead is not all used


class EmulatedPages:
    """An emulated page cache of experts, empty at first."""

    def __init__(self, settings: PolicySettings, costs: Costs) -> None:
        self._room, self._costs = int(_FILLED * sum(settings.slots)), costs
        self._present: OrderedDict[tuple[int, int], None] = OrderedDict()

    def token(self, routes: Sequence[Sequence[int]]) -> tuple[float, int]:
        """Replays a token; returns its seconds and its number of experts not in the page cache."""
        keys = [(layer, expert) for layer, route in enumerate(routes) for expert in route]
        faults = 0
        for key in keys:
            faults += key not in self._present
            self._present[key] = None
            self._present.move_to_end(key)
            if len(self._present) > self._room:
                self._present.popitem(last=False)
        return len(routes) * self._costs.layer + faults * _FAULT_COST * self._costs.read, faults


class EmulatedChoice(EmulatedTokens):
    """Replays tokens with slots or with the mapped file, as FileTrial decides.

    `left`: the numbers of the tokens at which slots were dropped for the file. `returned`: the
    numbers of those at which slots replaced the file again.
    """

    def __init__(self, settings: PolicySettings, costs: Costs) -> None:
        super().__init__(settings, costs)
        shape = len(settings.slots), settings.num_experts
        self.file_trial = FileTrial(np.ones(shape[0], np.int64))
        self.left: list[int] = []
        self.returned: list[int] = []
        self._settings = settings
        self._pages = EmulatedPages(settings, costs)
        self._uses: NDArray[np.int64] = np.zeros(shape, np.int64)
        self._layers = np.arange(shape[0])[:, np.newaxis]
        self._begin_window()

    def run(self, routes: NDArray[np.integer]) -> None:
        """Replays the tokens of `routes` (tokens, layers, k)."""
        for token in routes.tolist():
            if self.file_trial.source is ExpertSource.FILE:
                self._in_file(token)
            else:
                self._with_slots(token)

    def _with_slots(self, token: Sequence[Sequence[int]]) -> None:
        is_usual = self.trials.is_usual
        self._uses[self._layers, token] += 1
        self.run_token(token)
        if not self.file_trial.record(self.seconds[-1], is_usual=is_usual):
            return
        if self.file_trial.judge_slots(self._window(), sum(self._settings.slots)):
            self.left.append(len(self.seconds))
            self._pages = EmulatedPages(self._settings, self.costs)
        self._begin_window()

    def _in_file(self, token: Sequence[Sequence[int]]) -> None:
        seconds, faults = self._pages.token(token)
        self.seconds.append(seconds)
        self.file_trial.record_file(seconds, faults)
        if self.file_trial.source is ExpertSource.SLOTS:
            self.returned.append(len(self.seconds))
            order = np.argsort(-self._uses, axis=1, kind="stable").tolist()
            self.open(replace(self._settings, warm=tuple(map(tuple, order))))
            self._begin_window()

    def _begin_window(self) -> None:
        self._before, self._uses_before = self._waits, self._uses.copy()

    def _window(self) -> WindowCounts:
        return WindowCounts.between(self._before, self._waits, self._uses_before, self._uses.copy())

    @property
    def _waits(self) -> tuple[float, int, int]:
        return self.waited, self.late, self.loads
