"""The experts of a model that exceeds RAM: some in slots in RAM, the others read from its file."""

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.engine.backends.expert_slots import ExpertSlots
from sharpi.engine.backends.file_choice import FileChoice
from sharpi.engine.backends.model_part import Segment
from sharpi.engine.backends.slot_tiers import PinMonitor
from sharpi.experts.layer_stats import LayerStats
from sharpi.experts.native.feed import FeedCounts
from sharpi.experts.native.store import StoreSettings
from sharpi.experts.native.store_abi import read_layout
from sharpi.experts.policy_choice import (
    LEARNED,
    ExpertShape,
    choose_policy,
    choose_predictor,
    is_default,
    pin_note,
)
from sharpi.experts.policy_trials import PolicyTrials
from sharpi.experts.profile import ExpertProfile
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import (
    ExpertView,
    MappedUses,
    RunFacts,
    TierFacts,
    collect_stats,
    view_of_mapped,
)
from sharpi.experts.stats.stats_merge import FreedSlots
from sharpi.gguf.header import is_expert_matrix
from sharpi.gguf.reader import GgufFile
from sharpi.hardware.memory import probe_memory
from sharpi.model.config import ModelConfig
from sharpi.settings import ExpertConfig
from sharpi.system.memory import drop_pages
from sharpi.tiers.expert_memory import SlotDemand, grant
from sharpi.tiers.plan import TierPlan
from sharpi.tiers.planner import least_free

if TYPE_CHECKING:
    from sharpi.engine.lending.expert_client import ExpertClient


class ExpertTier(ExpertSlots):
    """The expert slots and predictor of one running model, for its `layers`; `close` ends them.

    With `may_map`, it frees its slots once trials show that the mapped file is faster, as
    `is_mapped` then says. Raises ModelFileError if a file cannot be opened, MemoryError if the
    slots do not fit.
    """

    def __init__(
        self,
        file: GgufFile,
        model: ModelConfig,
        plan: TierPlan,
        config: ExpertConfig,
        profile: ExpertProfile | None = None,
        *,
        may_map: bool = False,
    ) -> None:
        slots = plan.ram_slots[: model.num_layers]  # an MTP head has slots of its own
        shape = ExpertShape(
            model.num_experts, model.num_experts_per_token, slots,
            uses_small_maps=plan.uses_small_maps,
        )  # fmt: skip
        predictor, self._is_learned = choose_predictor(config, shape), config.predictor == LEARNED
        self.layers = plan.layers_on_disk
        layout = read_layout(file, model.num_layers, self.layers)
        queued = plan.num_staging * layout.largest_slot
        settings = StoreSettings(slots, plan.num_staging, queued)
        super().__init__(layout, settings, model.num_experts_per_token, predictor)
        layers = enumerate(zip(layout.layers, slots, strict=True))
        self._demands = {i: SlotDemand(layer.slot_bytes, most) for i, (layer, most) in layers}
        self._lock = Lock()  # while slots are made, freed or resized
        self.open(choose_policy(config, shape, profile), slots)
        kind = self.policy.settings.kind
        self._policy_prefetches = kind.prefetches
        self.trials = PolicyTrials(
            may_prefetch=predictor is not None or self._policy_prefetches,
            may_fall_back=kind.is_learned and is_default(config, kind),
        )
        self.notes: list[str] = []
        self._sequences: list[int] = [0]  # the sequences of the last step
        self._why_no_pin = pin_note(config, self.policy.settings)
        per_token = shape.num_moe_layers * shape.experts_per_token
        self._pin = PinMonitor(self.policy.settings, per_token)
        self._client: ExpertClient | None = None
        self.is_mapped = self._is_prompt = False
        self._past = FreedSlots(model.num_layers, model.num_experts)
        may_map &= not (self.policy.settings.warm_pin > 0 or shape.all_fit)
        self._tensors = [t for name, t in file.tensors.items() if is_expert_matrix(name)]
        self._file = FileChoice(layout, plan) if may_map else None

    @property
    def slot_bytes(self) -> int:
        """The bytes that the slots take now; 0 while the mapped file is used."""
        return 0 if self.is_mapped else self._bytes_of(self.store.slots)

    @property
    def most_slot_bytes(self) -> int:
        """The bytes that the slots may take; 0 while the mapped file is used."""
        return 0 if self.is_mapped else self._bytes_of(self._settings.slots)

    @property
    def largest_slot(self) -> int:
        """The bytes of a slot of the layer with the largest ones."""
        return max(demand.slot_bytes for demand in self._demands.values())

    def _bytes_of(self, slots: Sequence[int]) -> int:
        layers = zip(slots, self._demands.values(), strict=True)
        return sum(count * demand.slot_bytes for count, demand in layers)

    def resize(self, num_bytes: int) -> None:
        """Makes the slots take so many bytes at most, within the plan; any thread may call it."""
        with self._lock:
            if not self.is_mapped:
                self.store.resize(self._slots_within(num_bytes))

    def _slots_within(self, num_bytes: int) -> tuple[int, ...]:
        return tuple(grant(self._demands, num_bytes).values())

    def switch_source(self) -> bool:
        """Switches between slots and mapped file if trials say so; returns True after a switch."""
        if self._file is None or self._file.is_wanted == self.is_mapped:
            return False
        return self._restore_slots() if self.is_mapped else self._give_up_slots()

    def _give_up_slots(self) -> bool:
        run = RunFacts("", num_tokens=self.feed.counts().steps)
        self._past.add(self.store.layers(), self._collect(run))
        with self._lock:
            self.is_mapped = True
            super().close()
        return True

    def _restore_slots(self) -> bool:
        """Allocates slots again with the most used experts; returns False if they do not fit."""
        # The page cache might otherwise leave no huge pages.
        for tensor in self._tensors:
            drop_pages(tensor.data_in_file, self._layout.files[tensor.part], tensor.offset)
        memory = probe_memory()
        margin = 2 * least_free(memory.limit or memory.total)
        room = memory.free - margin - self._settings.num_staging * self.largest_slot
        # Half of what is free: others may take some meanwhile, and slots grow if they do not.
        slots = self._slots_within(room // 2)
        try:
            if not any(slots):
                raise MemoryError("no slot fits")
            with self._lock:
                self.open(replace(self.policy.settings, warm=self._past.order), slots)
                self.is_mapped = False
        except MemoryError:
            assert self._file is not None
            self._file.keep()
            return False
        return True

    def use_remote(self, client: "ExpertClient") -> None:
        """Makes steps request lent experts from other machines; ends trials of the mapped file."""
        self._client, self._file = client, None
        client.start(self.feed)

    def uses(self) -> NDArray[np.int64]:
        """Returns how many tokens used each expert, as an array (layers, experts)."""
        if self.is_mapped:
            return self._past.uses
        uses = self._past.uses + self.store.uses()
        return uses if self._client is None else uses + self._client.remote.uses()[1]

    def layer_stats(self) -> list[LayerStats]:
        """Returns each layer's statistics of slots since the model was loaded."""
        return self._past.layers if self.is_mapped else self._past.with_present(self.store.layers())

    def stall_seconds(self) -> float:
        """Returns the seconds that steps waited for experts since the model was loaded."""
        past = sum(each.total.stall_seconds for each in self._past.layers)
        return past if self.is_mapped else past + self.store.stall_seconds()

    def view(self, moe_layers: Sequence[int], mapped: NDArray[np.int64]) -> ExpertView:
        """Returns which experts are resident, and their uses with those in the `mapped` file."""
        uses = self.uses() + mapped
        if self.is_mapped:
            return view_of_mapped(uses, moe_layers)
        layers, rows = self.layer_stats(), list(moe_layers)
        return ExpertView(
            layers=tuple(rows),
            slots=tuple(self.store.slots[i] for i in rows),
            resident=self.policy.states().resident[rows],
            uses=uses[rows],
            counts=tuple(layers[i] for i in rows),
        )

    def begin_step(self, segments: Sequence[Segment], num_tokens: int) -> bool:
        """Begins a step of `num_tokens` tokens; returns True if the step predicts experts."""
        if self.is_mapped:
            return False
        self._set_policy(is_timed=num_tokens == 1)
        sequences = [segment.sequence for segment in segments]
        begins = [segment.position == 0 for segment in segments]
        if sequences != self._sequences or any(begins):
            self.feed.set_sequences(sequences, begins)
        if sequences != self._sequences[-1:] or begins[0]:
            self.feed.reset_sequence()
        self._sequences = sequences
        num_drafts = sum([segment.num_drafts for segment in segments])
        self._is_prompt = is_prompt = num_tokens - num_drafts > len(segments)
        trials = self.trials
        pays = trials.prefetches_now if num_tokens == 1 else trials.prefetches
        may_predict = trials.prefetch is not None and (is_prompt or pays)
        return self.feed.begin_step(may_predict=may_predict, is_prompt=is_prompt)

    def _set_policy(self, *, is_timed: bool) -> None:
        """Turns learning and prefetching on or off for the next step, as earlier trials decided."""
        if self.trials.learning is not None:
            self.store.set_learning(self.trials.learns_now if is_timed else self.trials.learns)
        if self._policy_prefetches:
            self.store.set_prefetching(self.trials.prefetches_now or not is_timed)

    def end_step(self, num_tokens: int, seconds: float) -> None:
        """Ends a step; raises ModelFileError if an expert could not be read."""
        if self.is_mapped:
            if self._file is not None and num_tokens == 1:
                self._file.end_token_in_file(seconds)
            return
        self.feed.check_step()
        if self._client is not None:
            self._client.count(num_tokens)
        self._pin.end_step(self.store, num_tokens)
        if num_tokens > 1:
            if self._file is not None and not self._is_prompt:
                self._file.end_shared_step(seconds)
            return
        if self._file is not None:
            self._file.end_token(self.store, seconds, is_usual=self.trials.is_usual)
        if (note := self.trials.record(seconds)) is not None:
            self.notes.append(note)

    def pin_note(self) -> str | None:
        """Returns a note if the most used experts were to be pinned and were not, else None."""
        return self._pin.note(self.store) or self._why_no_pin

    def stats(self, run: RunFacts, mapped: MappedUses | None = None) -> ExpertStats:
        """Returns the statistics so far; `mapped` counts the uses of experts in the mapped file."""
        present = None if self.is_mapped else self._collect(run)
        stats = self._past.stats(present, run, mapped)
        changes = self._file.notes if self._file is not None else []
        return replace(stats, notes=(*stats.notes, *changes))

    def _collect(self, run: RunFacts) -> ExpertStats:
        """Returns the statistics of the slots that exist now, without those freed earlier."""
        counts = self._learned_counts(run) if self._is_learned else self.feed.counts()
        client = self._client
        facts = TierFacts(
            predictor=LEARNED if self._is_learned else self.feed.predictor,
            predicts=self.trials.prefetches if self.trials.prefetch else self._is_learned,
            predictions=counts,
            notes=(*self.notes, *filter(None, [self._why_no_pin, self._why_off(counts)])),
            asked=client.stats if client else None,
        )
        return collect_stats(self.store, run, facts, client.remote if client else None)

    def _why_off(self, counts: FeedCounts) -> str | None:
        """Returns a sentence if predictions are off since too few of them were used, else None."""
        if self.feed.predictor is None or counts.is_worth_it:
            return None
        return (
            f"predictor {self.feed.predictor}: off after {counts.predicted_steps} of"
            f" {counts.steps} steps, since less than a quarter of what it prefetches is used"
        )

    def _learned_counts(self, run: RunFacts) -> FeedCounts:
        """Returns the learned policy's prediction counts: early loads count as predictions."""
        counts = self.policy.all_counts()
        return FeedCounts(
            predicted=sum(each.early_loads for each in counts),
            used=sum(each.accesses for each in counts),
            right=sum(each.early_hits for each in counts),
            steps=run.num_tokens,
            predicted_steps=run.num_tokens,
            is_worth_it=1,
        )

    def close(self) -> None:
        """Ends the reads and frees the slots; a second call does nothing."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if not self.is_mapped:
            super().close()
