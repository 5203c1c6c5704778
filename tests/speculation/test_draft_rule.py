"""The rule checks drafts where that gains time, over scripted step times, and loses little else."""

import random

import pytest
from for_each import for_each

from sharpi.settings import DraftKind, SpeculationConfig
from sharpi.speculation.draft import Draft
from sharpi.speculation.draft_policy import DraftPolicy, ModelDrafts, StepTimes
from sharpi.speculation.sequence_drafts import Acceptance
from sharpi.speculation.speculator import DraftBackoff, SequenceRequest, Speculator
from sharpi.trial import Budget


def play(
    slope: float, chance: float, num_steps: int = 600, most: int = 8, first_check: float = 0.0
) -> tuple[float, DraftPolicy]:
    """Plays steps of 1 + slope per further row; returns tokens per second, and the rule.

    The first check takes `first_check` more.
    """
    rule, dice = DraftPolicy(), random.Random(1)
    tokens = seconds = 0.0
    for _ in range(num_steps):
        choice = rule.choose([[chance ** (i + 1) for i in range(most)]], most)
        length, right = choice.lengths[0], 0
        while right < length and dice.random() < chance:
            right += 1
        took = 1 + slope * length
        if length:
            took, first_check = took + first_check, 0.0
        rule.record(choice, took, 1 + right)
        tokens, seconds = tokens + 1 + right, seconds + took
    return tokens / seconds, rule


def test_cheap_rows_are_filled_with_likely_drafts() -> None:
    speed, _ = play(slope=0.1, chance=0.9)
    assert speed > 2.5


def test_a_good_length_is_found_within_few_steps() -> None:
    speed, _ = play(slope=0.3, chance=0.97, num_steps=40, most=15)
    assert speed > 1.7


@for_each("is_sure", [True, False])
def test_a_trial_risks_what_its_drafts_may_lose(is_sure: bool) -> None:
    """Fifteen drafts that are almost surely right are tried at once, others a few at a time."""
    rule = DraftPolicy()
    for _ in range(4):
        rule.record(rule.choose([[]], 15), 1.0, 1)
    chance = 0.99 if is_sure else 0.9
    (length,) = rule.choose([[chance ** (i + 1) for i in range(15)]], 15).lengths
    assert (length == 15) is is_sure
    assert length > 6  # which the worst case would allow


@for_each("first_check", [0.5, 1.5])
def test_a_first_check_that_reads_much_is_no_verdict(first_check: float) -> None:
    """Experts of drafts may be on the disk at first, and in slots afterwards."""
    speed, _ = play(slope=0.2, chance=0.7, num_steps=200, first_check=first_check)
    assert speed > 1.3


@for_each("reads_disk", [False, True])
def test_trials_grow_where_many_rows_may_read_much(reads_disk: bool) -> None:
    """One draft gains and several lose, as where wrong drafts use experts that are on a disk."""
    rule, dice, lengths = DraftPolicy(reads_disk=reads_disk), random.Random(1), list[int]()
    tokens = seconds = 0.0
    for _ in range(150):
        choice = rule.choose([[0.7 ** (i + 1) for i in range(8)]], 8)
        length, right = choice.lengths[0], 0
        while right < length and dice.random() < 0.7:
            right += 1
        took = 1.25 if length == 1 else 1 + 0.9 * length
        rule.record(choice, took, 1 + right)
        tokens, seconds = tokens + 1 + right, seconds + took
        lengths.append(length)
    checks = [length for length in lengths if length]
    assert (checks[0] == 1) is reads_disk
    if reads_disk:
        assert tokens / seconds > 1.25
        assert all(after <= 2 * max(checks[:i]) + 1 for i, after in enumerate(checks) if i)


@for_each("stalls", [(1,), (2,), (1, 2), (1, 3)])
def test_a_stall_of_the_disk_in_a_first_check_is_no_verdict(stalls: tuple[int, ...]) -> None:
    """The disk stalls a check for several steps; those before and after it gain."""
    rule, dice, num_checks = DraftPolicy(reads_disk=True), random.Random(2), 0
    tokens = seconds = 0.0
    for _ in range(150):
        choice = rule.choose([[0.7]], 1)
        length = choice.lengths[0]
        num_checks += bool(length)
        right = int(length > 0 and dice.random() < 0.7)
        took = 1 + 0.3 * length + 3.5 * (length > 0 and num_checks in stalls)
        rule.record(choice, took, 1 + right)
        tokens, seconds = tokens + 1 + right, seconds + took
    assert tokens / seconds > 1.15


@for_each("seed", range(8))
def test_little_is_lost_where_checks_stall_now_and_then(seed: int) -> None:
    """As on a disk of 1 GB/s: most checks would gain, and those that stall lose more than that."""
    rule, dice, tokens, seconds = DraftPolicy(reads_disk=True), random.Random(seed), 0.0, 0.0
    for _ in range(150):
        choice = rule.choose([[0.62, 0.4, 0.25]], 3)
        length, right = choice.lengths[0], 0
        while right < length and dice.random() < 0.62:
            right += 1
        took = 1 + 0.2 * length + 2.5 * length * (length > 0 and dice.random() < 0.35)
        rule.record(choice, took, 1 + right)
        tokens, seconds = tokens + 1 + right, seconds + took
    assert tokens / seconds > 0.93  # four first checks, and three steps


@pytest.mark.parametrize(
    ("kind", "level", "chance"), [("mtp", 0, 0.05), ("draft", 9, 0.95), ("ngram", 3, 0.5)]
)
def test_a_model_is_believed_until_it_was_judged(
    kind: DraftKind, level: int, chance: float
) -> None:
    acceptance = Acceptance(Acceptance())
    assert acceptance.chance(kind, level) == pytest.approx(chance)
    draft = Draft(kind, (7,), (level,))
    for _ in range(100):
        acceptance.learn(draft, (8,))
    assert acceptance.chance(kind, level) < 0.05


def test_a_head_that_believes_nothing_is_not_checked() -> None:
    rule, acceptance = DraftPolicy(), Acceptance(Acceptance())
    for _ in range(5):
        rule.record(rule.choose([[]], 8), 1.0, 1)
    chances = acceptance.chances(Draft("mtp", (7,), (0,)))
    assert rule.choose([chances], 8).lengths == (0,)


@pytest.mark.parametrize(("chance", "num_drafts"), [(0.05, 1), (0.6, 2)])
def test_a_model_that_expects_nothing_drafts_once(chance: float, num_drafts: int) -> None:
    choice, times, budget = ModelDrafts(), StepTimes(), Budget()
    drafted = 0
    for _ in range(200):
        times.record(1, 1.0)
        budget.record(1.0, 0.0, 1.0)
        if choice.length(times, budget, 1, 4):
            choice.drafted(0.8, chance)
            drafted += 1
    assert drafted == num_drafts


def test_dear_rows_are_left_empty() -> None:
    speed, rule = play(slope=1.0, chance=0.5)
    assert speed > 0.98
    assert rule.budget.lost <= 0.02 * rule.budget.seconds + 3.5


@for_each("chance", [0.05, 0.3, 0.5, 0.7, 0.9, 0.99])
@for_each("slope", [0.05, 0.2, 0.45, 0.8, 1.5])
def test_nothing_is_lost_whatever_rows_cost(slope: float, chance: float) -> None:
    speed, _ = play(slope, chance)
    assert speed > 0.97


def test_unlikely_drafts_are_not_checked() -> None:
    rule = DraftPolicy()
    for rows in (1, 1, 2, 2, 3, 3):
        rule.times.record(rows, 1 + 0.4 * (rows - 1))
    assert rule.choose([[0.2, 0.1]], 8).lengths == (0,)
    assert rule.choose([[0.9, 0.2]], 8).lengths == (1,)
    assert rule.choose([[0.95, 0.9]], 8).lengths == (2,)


def test_rows_go_to_the_likeliest_drafts_of_several_sequences() -> None:
    rule = DraftPolicy()
    for rows in (2, 2, 3, 3, 4, 4, 5, 5, 6, 6):
        rule.times.record(rows, 1 + 0.2 * (rows - 2))
    choice = rule.choose([[0.9, 0.85], [0.3, 0.1]], 3)
    assert choice.lengths == (2, 0)


def test_a_step_that_others_fill_has_no_drafts() -> None:
    rule = DraftPolicy()
    for rows in (4, 4, 5, 5, 6, 6):
        rule.times.record(rows, float(rows))
    assert rule.choose([[0.9]] * 4, 2).lengths == (0, 0, 0, 0)


def test_the_token_that_ends_a_text_counts() -> None:
    """The end token is no part of the text, but its step was not wasted."""
    speculator = Speculator(SpeculationConfig(kinds=("ngram",), max_drafts=3), 3)
    drafts = speculator.begin([5, 6, 7, 8])
    for tokens in ([9], []):
        speculator.record(speculator.choose([SequenceRequest(drafts, 3)]), 0.5, [tokens])
    assert drafts.statistics.tokens_per_step == 1.0
    assert drafts.statistics.seconds_saved == -drafts.statistics.drafting_seconds


def test_larger_steps_bound_smaller_ones() -> None:
    times = StepTimes()
    times.record(2, 9.0)
    times.record(4, 2.0)
    assert times.seconds(2) == 2.0


def test_a_size_that_has_not_run_for_long_is_tried_again() -> None:
    times = StepTimes()
    for _ in range(2):
        times.record(1, 1.0)
        times.record(3, 9.0)
    assert times.is_known(3)
    for _ in range(500):
        times.record(1, 1.0)
    assert not times.is_known(3)
    assert times.seconds(3) < 2


def test_acceptance_follows_what_happens() -> None:
    overall = Acceptance()
    acceptance = Acceptance(overall)
    draft = Draft("ngram", (1, 2, 3), (2, 3, 4))
    for _ in range(50):
        acceptance.learn(draft, [1, 9])
    assert acceptance.chance("ngram", 2) > 0.9
    assert acceptance.chance("ngram", 3) < 0.1
    assert acceptance.chance("ngram", 4) == 0.5
    assert Acceptance(overall).chance("ngram", 2) > 0.9


def test_a_search_in_vain_is_made_less_often() -> None:
    pause = DraftBackoff()
    searches = 0
    for _ in range(400):
        if not pause.skips_search():
            searches += 1
            pause.searched(0.05, gained=0.0)
        pause.step(1.0)
    assert 5 <= searches < 50


def test_a_search_that_pays_is_made_at_every_step() -> None:
    pause = DraftBackoff()
    for _ in range(100):
        assert not pause.skips_search()
        pause.searched(0.05, gained=0.5)
        pause.step(1.0)
