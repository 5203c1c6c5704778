"""FileChoice: decides between expert slots in RAM and experts in the mapped model file.

Each change is reported on stderr.
"""

import resource

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.file_trial import ExpertSource, FileTrial, WindowCounts
from sharpi.experts.native.store import ExpertStore
from sharpi.experts.native.store_abi import StoreLayout
from sharpi.hardware.memory import probe_memory
from sharpi.system.process import print_running_note
from sharpi.tiers.plan import Purpose, Tier, TierPlan
from sharpi.tiers.planner import MAPPED_MARGIN


class FileChoice:
    """Compares token times with slots in RAM and with the mapped file, while the model runs."""

    def __init__(self, layout: StoreLayout, plan: TierPlan) -> None:
        sizes = [layer.expert_bytes for layer in layout.layers]
        self._trial = FileTrial(np.array(sizes, np.int64), self)
        self._learned = plan.bytes_in(Tier.RAM, Purpose.LEARNED)
        self._store: ExpertStore | None = None  # of the latest token with slots
        self._waits = 0.0, 0, 0  # at the start of the window
        self._uses: NDArray[np.int64] = np.zeros(0, np.int64)  # at the start of the window
        self._faults = 0
        self.notes: list[str] = []  # a sentence for each change, for the statistics

    @property
    def is_wanted(self) -> bool:
        """True if the next step should use the mapped file."""
        return self._trial.choice is ExpertSource.FILE

    def keep(self) -> None:
        """Selects the mapped file from now on, because RAM has no room for slots."""
        self._trial.use_file()

    def end_token(self, store: ExpertStore, seconds: float, *, is_usual: bool) -> None:
        """Records a token decoded with slots; not `is_usual` if a trial of the policy has it."""
        self._store = store
        self._trial.record(seconds, is_usual=is_usual)
        if self.is_wanted:
            self._faults = _page_faults()

    def end_shared_step(self, seconds: float) -> None:
        """Records the seconds of a step that decoded several tokens with slots."""
        self._trial.add_shared_step(seconds)

    def end_token_in_file(self, seconds: float) -> None:
        """Records the seconds of a decoded token that used the mapped file."""
        faults, before = _page_faults(), self._faults
        self._faults = faults
        if self._trial.record(seconds, faults=faults - before):
            self._tell()

    def _tell(self) -> None:
        times = f"tokens take {self._trial.file_ratio:.2f} times as long as with slots"
        if self.is_wanted:
            line = f"experts are now used where the file is mapped: {times}"
        else:
            line = f"experts have slots again: where the file is mapped, {times}"
        self.notes.append(line)
        print_running_note(line)

    def begin_window(self) -> None:
        """Notes the counts at the start of a window of tokens with slots."""
        assert self._store is not None
        self._waits, self._uses = _waits(self._store), self._store.uses()

    def window(self) -> tuple[WindowCounts, int]:
        """Returns the waits, loads and expert uses since the window began, and the free bytes."""
        assert self._store is not None
        now, uses = _waits(self._store), self._store.uses()
        free = self._store.totals().memory_bytes + self._learned + _spare()
        return WindowCounts.between(self._waits, now, self._uses, uses), free


def _waits(store: ExpertStore) -> tuple[float, int, int]:
    """Returns the seconds that decoded tokens waited, and the numbers of late experts and loads."""
    counts = [layer.decode for layer in store.layers()]
    stall = sum(each.stall_seconds for each in counts)
    return stall, sum(each.late for each in counts), sum(each.loads for each in counts)


def _spare() -> int:
    """Returns the bytes of RAM that are free while the slots exist, less a margin."""
    return max(0, probe_memory().free - MAPPED_MARGIN)


def _page_faults() -> int:
    """Returns the number of this process's major page faults, which waited for a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
