"""The experts of a model that does not fit: slots in RAM, the others read from its file."""

from collections.abc import Sequence

from sharpi.config import ExpertConfig
from sharpi.engine.backends.model_part import Segment
from sharpi.experts.native.feed import ExpertFeed
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.native.store import ExpertStore, StoreSettings
from sharpi.experts.native.store_layout import read_layout
from sharpi.experts.policy_choice import LEARNED, ExpertShape, choose_policy, choose_predictor
from sharpi.experts.prediction_trial import PredictionTrial
from sharpi.experts.profile import ExpertProfile
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_collect import RunFacts, collect_stats
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig
from sharpi.tiers.plan import TierPlan

_QUEUED_TOKENS = 2  # prefetches in the queue: at most the experts of two tokens of a layer


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
        shape = ExpertShape(model.num_experts, model.num_experts_per_token, plan.ram_slots)
        predictor = choose_predictor(asked, shape)
        self._is_learned = asked.predictor == LEARNED
        self.policy = NativePolicy(choose_policy(asked, shape, profile))
        layout = read_layout(file, model.num_layers)
        queued = _QUEUED_TOKENS * model.num_experts_per_token * layout.largest_slot
        settings = StoreSettings(plan.ram_slots, plan.num_staging, queued)
        self.store = ExpertStore(layout, settings, self.policy)
        self.feed = ExpertFeed(self.store, predictor, model.num_experts_per_token)
        self.trial = PredictionTrial() if predictor else None
        self.notes: list[str] = []
        self._sequence = 0  # of the last step's last token
        self.store.start()

    def begin_step(self, segments: Sequence[Segment], num_tokens: int) -> bool:
        """Begins a step of `num_tokens` tokens; returns True if it predicts."""
        sequences = [segment.sequence for segment in segments]
        follows = sequences == [self._sequence] and segments[0].position > 0
        self._sequence = sequences[-1]
        if not follows:
            self.feed.reset_sequence()
        is_decode = num_tokens == 1
        may_predict = self.trial is not None and (self.trial.predicts_now or not is_decode)
        return self.feed.begin_step(may_predict=may_predict)

    def end_step(self, num_tokens: int, seconds: float) -> None:
        """Ends a step; raises ModelFileError if an expert could not be read."""
        self.feed.check_step()
        if self.trial is None or num_tokens != 1:
            return
        if self.trial.record(seconds):
            self.notes.append(self.trial.verdict_note)

    def stats(self, model: str, num_tokens: int) -> ExpertStats:
        """Returns the statistics so far; `num_tokens` counts decoded tokens."""
        predictor = LEARNED if self._is_learned else self.feed.predictor
        facts = RunFacts(
            model=model,
            num_tokens=num_tokens,
            predictor=predictor,
            predicts=self.trial.is_on if self.trial else self._is_learned,
            predictions=self.feed.predictions(),
            notes=tuple(self.notes),
        )
        return collect_stats(self.store, facts)

    def close(self) -> None:
        """Ends the reads and frees the slots; a second call does nothing."""
        self.feed.close()
        self.store.close()
        self.policy.close()
