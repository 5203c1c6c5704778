"""The experts of a model that does not fit: slots in RAM, the others read from its file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sharpi.config import ExpertConfig
from sharpi.engine.backends.model_part import Segment
from sharpi.engine.backends.pin_messages import announce_pin, missed_pin
from sharpi.experts.native.feed import ExpertFeed, FeedCounts
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore, StoreSettings
from sharpi.experts.native.store_layout import read_layout
from sharpi.experts.policy_choice import (
    LEARNED,
    ExpertShape,
    choose_policy,
    choose_predictor,
    falls_back,
    pin_note,
)
from sharpi.experts.policy_trials import PolicyTrials
from sharpi.experts.profile import ExpertProfile
from sharpi.experts.stats.counts import HitCount
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import RunFacts, TierFacts, collect_stats
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.tiers.plan import TierPlan

if TYPE_CHECKING:
    from sharpi.engine.lending.asker import Asker


class ExpertTier:
    """The store, policy and predictor of one running model; `close` ends them.

    Raises ModelFileError if a file cannot be opened, MemoryError if the slots do not fit.
    """

    def __init__(
        self,
        file: GgufFile,
        model: ModelConfig,
        plan: TierPlan,
        asked: ExpertConfig,
        profile: ExpertProfile | None = None,
    ) -> None:
        slots = plan.ram_slots[: model.num_layers]  # an MTP head has slots of its own
        shape = ExpertShape(
            model.num_experts,
            model.num_experts_per_token,
            slots,
            learns_little=plan.learns_little,
        )
        predictor = choose_predictor(asked, shape)
        self._is_learned = asked.predictor == LEARNED
        self.policy = NativePolicy(choose_policy(asked, shape, profile))
        layout = read_layout(file, model.num_layers)
        queued = plan.num_staging * layout.largest_slot
        settings = StoreSettings(slots, plan.num_staging, queued)
        self.store = ExpertStore(layout, settings, self.policy)
        self.feed = ExpertFeed(self.store, predictor, model.num_experts_per_token)
        self._policy_prefetches = self.policy.settings.kind.prefetches
        self.trials = PolicyTrials(
            may_prefetch=predictor is not None or self._policy_prefetches,
            may_fall_back=falls_back(asked, self.policy.settings.kind),
        )
        self.notes: list[str] = []
        self._sequences: list[int] = [0]  # of the last step
        self._why_no_pin = pin_note(asked, self.policy.settings)
        self._pins_at = self.policy.settings.next_pin(-1)  # None once it happened, or never does
        self._accesses_of_token = shape.num_moe_layers * shape.experts_per_token
        self._most_accesses = 0  # there were at most so many
        self._asker: Asker | None = None
        self.store.start()

    def ask(self, asker: "Asker") -> None:
        """Lets steps ask other machines for their experts; the tier closes the asker."""
        self._asker = asker
        asker.start(self.feed)

    def uses(self) -> NDArray[np.int64]:
        """Returns how many tokens used each expert, (layers, experts)."""
        uses = self.store.uses()
        return uses if self._asker is None else uses + self._asker.remote.uses()[1]

    def begin_step(self, segments: Sequence[Segment], num_tokens: int) -> bool:
        """Begins a step of `num_tokens` tokens; returns True if it predicts."""
        self._set_policy(is_timed=num_tokens == 1)
        sequences = [segment.sequence for segment in segments]
        begins = [segment.position == 0 for segment in segments]
        if sequences != self._sequences or any(begins):
            self.feed.set_sequences(sequences, begins)
        if sequences != self._sequences[-1:] or begins[0]:
            self.feed.reset_sequence()
        self._sequences = sequences
        num_drafts = sum([segment.num_drafts for segment in segments])
        is_prompt = num_tokens - num_drafts > len(segments)
        return self.feed.begin_step(may_predict=self._may_predict(num_tokens, is_prompt=is_prompt),
                                    is_prompt=is_prompt)  # fmt: skip

    def _set_policy(self, *, is_timed: bool) -> None:
        """Turns learning and prefetching on or off for the next step, as the trials decided."""
        if self.trials.learning is not None:
            self.policy.set_learning(self.trials.learns_now if is_timed else self.trials.learns)
        if self._policy_prefetches:
            self.policy.set_prefetching(self.trials.prefetches_now or not is_timed)

    def _may_predict(self, num_tokens: int, *, is_prompt: bool) -> bool:
        """Returns True if the next step may predict: always in a prompt, else as trials decided."""
        trials = self.trials
        if trials.prefetch is None:
            return False
        return is_prompt or (trials.prefetches_now if num_tokens == 1 else trials.prefetches)

    def end_step(self, num_tokens: int, seconds: float) -> None:
        """Ends a step; raises ModelFileError if an expert could not be read."""
        self.feed.check_step()
        self._watch_pin(num_tokens)
        note = self.trials.record(seconds) if num_tokens == 1 else None
        if note is not None:
            self.notes.append(note)

    def _watch_pin(self, num_tokens: int) -> None:
        """Announces the warm pin; asks the store only once there may be enough lookups."""
        if self._pins_at is None:
            return
        self._most_accesses += num_tokens * self._accesses_of_token
        if self._most_accesses < self._pins_at:
            return
        before = self.store.before_pin()
        if before is None:
            return
        self._pins_at = None
        announce_pin(self.policy.settings, HitCount(*before), "RAM")

    def pin_note(self) -> str | None:
        """Returns a sentence if the warm pin that the user asked for did not happen."""
        if self._pins_at is None:
            return None
        accesses = sum(each.accesses for each in self.store.counts())
        return missed_pin(self.policy.settings, accesses, "RAM")

    def stats(self, run: RunFacts) -> ExpertStats:
        """Returns the statistics so far."""
        counts = self._learned_counts(run) if self._is_learned else self.feed.counts()
        asker = self._asker
        facts = TierFacts(
            predictor=LEARNED if self._is_learned else self.feed.predictor,
            predicts=self.trials.prefetches if self.trials.prefetch else self._is_learned,
            predictions=counts,
            notes=(*self.notes, *filter(None, [self._why_no_pin])),
            asked=asker.stats if asker else None,
        )
        return collect_stats(self.store, run, facts, asker.remote if asker else None)

    def _learned_counts(self, run: RunFacts) -> FeedCounts:
        """Returns the prediction counts of the learned policy: its early loads are predictions."""
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
        if self._asker is not None:
            self._asker.close()
            self._asker = None
        self.feed.close()
        self.store.close()
        self.policy.close()
