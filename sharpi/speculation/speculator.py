"""Speculator: drafts for all sequences of an engine, and learns which drafts are accepted."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sharpi.settings import DraftKind, SpeculationConfig
from sharpi.speculation.draft import Drafter
from sharpi.speculation.draft_policy import Choice, DraftPolicy, ModelDrafts
from sharpi.speculation.sequence_drafts import WORTH_A_ROW, Acceptance, SequenceDrafts
from sharpi.speculation.statistics import DraftStatistics
from sharpi.speculation.text_lookup import NgramDrafter, SeenText, SuffixDrafter
from sharpi.trial import Average

_MAX_USELESS = 2  # consecutive useless searches before a pause
_SHARE = 0.002  # the share of the time that useless searches may take on average
_LONGEST = 512  # the longest pause, in steps


class DraftBackoff:
    """Skips searches for drafts after useless ones, so that these take 0.2 % of the time."""

    def __init__(self) -> None:
        self._num_useless = self._num_to_skip = 0
        self._search_seconds, self._step_seconds = Average(), 0.0

    def skips_search(self) -> bool:
        """Counts a step; returns True if the step should skip the search for drafts."""
        self._num_to_skip -= 1
        return self._num_to_skip >= 0

    def searched(self, seconds: float, gained: float) -> None:
        """Records a search: the seconds that it took, and the expected gain of its drafts."""
        self._search_seconds.add(seconds)
        self._num_useless = 0 if gained > seconds else self._num_useless + 1
        if self._num_useless > _MAX_USELESS and self._step_seconds:
            times = self._search_seconds.value / (_SHARE * self._step_seconds)
            self._num_to_skip = min(_LONGEST, int(times))

    def record_model_draft(self) -> None:
        """Records a model's draft, a useful search: `ModelDrafts` decides if it saves time."""
        self._num_useless = 0

    def step(self, seconds: float) -> None:
        """Records the duration of a step without drafts."""
        self._step_seconds = seconds


FREE_KINDS: tuple[DraftKind, ...] = ("ngram", "suffix")  # kinds that take hardly any time
# The shortest step for which text is remembered, in seconds; a token takes about 3 us.
_LEAST_REMEMBERED = 0.6e-3
# Creates the drafters of one sequence that run a model.
ModelDrafters = Callable[[], Sequence[Drafter]]


class SequenceRequest(NamedTuple):
    """A sequence of the next step, for which at most `most` tokens may be drafted."""

    drafts: SequenceDrafts
    most: int


class StepDrafts(NamedTuple):
    """The tokens to check for each sequence, if any; `is_search` if no model drafted."""

    sequences: Sequence[SequenceRequest]
    drafts: Sequence[tuple[int, ...]]
    choice: Choice
    rule: DraftPolicy
    seconds: float
    is_search: bool

    def gained(self) -> float:
        """Returns the seconds that the drafts are expected to save; less than 0 in a trial."""
        choice, times = self.choice, self.rule.times
        num = len(choice.lengths)
        rows = num + sum(choice.lengths)
        return choice.num_tokens / num * times.seconds(num) - times.seconds(rows)


class Speculator:
    """Makes drafts for an engine's sequences, and chooses which of them to check.

    Only the engine's thread may use it. `reads_disk`: steps may read experts from a disk. Several
    steps may be in progress, each with different sequences; `rule` is that of the latest one.
    """

    def __init__(
        self,
        settings: SpeculationConfig,
        max_drafts: int,
        model_drafters: ModelDrafters | None = None,
        *,
        reads_disk: bool = False,
    ) -> None:
        self.settings, self.max_drafts = settings, max_drafts
        self._reads_disk = reads_disk
        self.rule = DraftPolicy(reads_disk=reads_disk)
        # By the number of steps in progress, because their times differ.
        self._rules = {1: self.rule}
        self.statistics = DraftStatistics()
        self._seen = SeenText()
        self._overall = Acceptance()
        self._model_drafters = model_drafters
        self._backoff = DraftBackoff()
        self._model_choice = ModelDrafts()

    def begin(self, tokens: Sequence[int], own: Sequence[Drafter] = ()) -> SequenceDrafts:
        """Returns a new sequence's drafters, with its tokens so far and `own` further drafters."""
        drafters: list[Drafter] = []
        if "ngram" in self.settings.kinds:
            drafters.append(NgramDrafter())
        if "suffix" in self.settings.kinds:
            drafters.append(SuffixDrafter(self._seen))
        if self._model_drafters is not None:
            drafters += self._model_drafters()
        drafters += own
        drafts = SequenceDrafts(drafters, self._overall)
        drafts.extend(tokens)
        return drafts

    def skips_search(self) -> bool:
        """Counts a step; True to skip the search, whose tokens `record_skipped` gets later."""
        return self.settings.is_auto and self._backoff.skips_search()

    def record_skipped(self, drafts: SequenceDrafts, tokens: Sequence[int]) -> None:
        """Records the tokens of a sequence from steps without a call of `record`."""
        if tokens:
            drafts.extend(tokens)
            drafts.num_known += len(tokens)
            usual = self.rule.times.seconds(1)
            for statistics in (self.statistics, drafts.statistics):
                statistics.add_skipped(len(tokens), usual)

    def end(self, drafts: SequenceDrafts | None, tokens: Sequence[int]) -> None:
        """Ends a sequence, whose new part `tokens` joins the recent texts."""
        if drafts is not None:
            drafts.close()
        if "suffix" in self.settings.kinds and self._may_remember():
            self._seen.add(tokens)

    def _may_remember(self) -> bool:
        """Returns False if steps are so short that storing a text would take notable time."""
        usual = self.rule.times.seconds(1)
        return not (self.settings.is_auto and 0 < usual < _LEAST_REMEMBERED)

    def choose(
        self, sequences: Sequence[SequenceRequest], most: int | None = None, num_steps: int = 1
    ) -> StepDrafts:
        """Returns the drafts to check, at most `most`, with `num_steps` usually in progress."""
        start = time.perf_counter()
        most = self.max_drafts if most is None else most
        self.rule = self._rule(num_steps)
        of_models = self._effort(sequences)
        is_auto, least = self.settings.is_auto, max(1, self.settings.min_drafts)
        chance = WORTH_A_ROW if is_auto else 0.0
        proposed = [each.drafts.propose(each.most, of_models, chance) for each in sequences]
        chances = [self._worthwhile(each) for each in proposed]
        choice = self.rule.choose(chances, most) if is_auto else _fixed(chances, most)
        lengths = tuple([length if length >= least else 0 for length in choice.lengths])
        choice = choice._replace(lengths=lengths)
        chosen = [
            each.drafts.drafts[0].tokens[:length] if length else ()
            for each, length in zip(sequences, lengths, strict=True)
        ]
        seconds = time.perf_counter() - start
        is_search = not self._time_drafts(sequences, choice, seconds)
        return StepDrafts(sequences, chosen, choice, self.rule, seconds, is_search)

    def _rule(self, num_steps: int) -> DraftPolicy:
        if num_steps not in self._rules:
            self._rules[num_steps] = DraftPolicy(reads_disk=self._reads_disk)
        return self._rules[num_steps]

    def _effort(self, sequences: Sequence[SequenceRequest]) -> int:
        """Returns how many tokens a model may draft for each sequence; 0 for none."""
        if not self.settings.is_auto:
            return self.max_drafts
        if not any(each.drafts.has_models for each in sequences):
            return 0
        rule, num = self.rule, len(sequences)
        return self._model_choice.length(rule.times, rule.budget, num, self.max_drafts // num)

    def _time_drafts(
        self, sequences: Sequence[SequenceRequest], choice: Choice, seconds: float
    ) -> bool:
        """Records the seconds that drafting took; returns True if a model made a draft."""
        best = ((each.drafts.acceptance, each.drafts.best) for each in sequences)
        by_models = [(own, draft) for own, draft in best if draft and draft.kind not in FREE_KINDS]
        count = sum(len(draft.tokens) for _, draft in by_models)
        for acceptance, draft in by_models:
            chance = acceptance.chance(draft.kind, draft.certainty[0])
            self._model_choice.drafted(seconds / count, chance)
        if by_models and (choice.is_trial or not any(choice.lengths)):
            self.rule.budget.spend(seconds)
        if by_models:
            self._backoff.record_model_draft()
        return bool(by_models)

    def _worthwhile(self, chances: list[float]) -> list[float]:
        """Returns the first of `chances`, up to a token less likely than `min_probability`."""
        before = 1.0
        for i, chance in enumerate(chances):
            if chance < self.settings.min_probability * before:
                return chances[:i]
            before = chance
        return chances

    def record(self, step: StepDrafts, seconds: float, tokens: Sequence[Sequence[int]]) -> None:
        """Records a step's duration and its tokens by sequence, none for one with the end token."""
        start, gained = time.perf_counter(), step.gained()
        counts, num = [max(1, len(own)) for own in tokens], len(step.sequences)
        num_tokens = sum(counts)
        step.rule.record(step.choice, seconds, num_tokens)
        usual = step.rule.times.seconds(num)
        self._backoff.step(usual)
        lengths = step.choice.lengths
        for each, own, count, length in zip(step.sequences, tokens, counts, lengths, strict=True):
            for statistics in (self.statistics, each.drafts.statistics):
                statistics.add_step(count, seconds / num, count * usual / num)
                statistics.drafting_seconds += step.seconds / num
                if draft := each.drafts.best:
                    num_accepted = max(0, len(own) - 1) if length else 0
                    statistics.add_draft(draft, length, num_accepted)
            each.drafts.learn(own)
        if step.is_search:
            self._backoff.searched(step.seconds + time.perf_counter() - start, gained)


def _fixed(chances: Sequence[Sequence[float]], most: int) -> Choice:
    """Returns a choice of all drafted tokens, but at most `most`; earlier sequences go first."""
    left, lengths = most, []
    for own in chances:
        lengths.append(min(left, len(own)))
        left -= lengths[-1]
    return Choice(tuple(lengths), 0.0)
