"""Drafters propose what followed the longest match, as a plain search finds it."""

import random
from array import array

import pytest

from sharpi.serve.status.status_routes import resident_bytes
from sharpi.settings import SpeculationConfig
from sharpi.speculation.speculator import SequenceRequest, Speculator
from sharpi.speculation.text_lookup import (
    NgramDrafter,
    Place,
    SeenText,
    SuffixAutomaton,
    SuffixDrafter,
)
from tests.speculation.plain_suffix_automaton import ROOT, PlainSuffixAutomaton


def text_of(seed: int, length: int, alphabet: int = 4) -> list[int]:
    choose = random.Random(seed)
    return [choose.randrange(alphabet) for _ in range(length)]


def longest_match(text: list[int], newest: list[int]) -> int:
    """Finds the longest end of `newest` that occurs in the text."""
    for length in range(len(newest), 0, -1):
        end = newest[-length:]
        if any(text[i : i + length] == end for i in range(len(text) - length + 1)):
            return length
    return 0


def test_the_plain_automaton_finds_the_longest_match_of_every_beginning() -> None:
    automaton, text = PlainSuffixAutomaton(), text_of(1, 200)
    for token in text:
        automaton.append(token)
    other = text_of(2, 120)
    state, length = ROOT, 0
    for i, token in enumerate(other):
        state, length = automaton.follow(state, length, token)
        assert length == longest_match(text, other[: i + 1])
        end = automaton.end[state]
        assert text[end - length : end] == other[i + 1 - length : i + 1]


def test_the_plain_automaton_is_linear() -> None:
    automaton = PlainSuffixAutomaton()
    for token in text_of(3, 1000, alphabet=2):
        automaton.append(token)
    assert len(automaton.link) <= 2 * 1000


@pytest.mark.parametrize("alphabet", [1, 2, 4, 50_000])
def test_the_automaton_is_the_plain_one(alphabet: int) -> None:
    lengths = [0, 1, 300, 2, 57, 500]
    automaton, plain = SuffixAutomaton(sum(lengths) + len(lengths)), PlainSuffixAutomaton()
    place, state, length = Place(automaton), ROOT, 0
    for seed, size in enumerate(lengths):
        automaton.add(text_of(seed, size, alphabet))
        for token in (*text_of(seed, size, alphabet), -1):
            plain.append(token)
        for token in (*text_of(seed + 100, 200, alphabet), *text_of(seed, size, alphabet)[:40]):
            place.follow(array("i", [token]))
            state, length = plain.follow(state, length, token)
            assert place.length == length
            following = [*plain.text[plain.end[state] :][:7], -1]
            assert place.following(7) == tuple(following[: following.index(-1)])


@pytest.mark.parametrize("text", [[0] * 999, [*range(999)], [*[0, 1] * 499, 2], [*[0] * 998, 1]])
def test_the_automaton_has_room_for_every_text(text: list[int]) -> None:
    automaton = SuffixAutomaton(1000)
    for _ in range(3):
        automaton.add(text)
        place = Place(automaton)
        place.follow(array("i", text[:500]))
        assert (place.length, place.following(2)) == (500, tuple(text[500:502]))
        with pytest.raises(ValueError, match="no room"):
            automaton.add([])
        automaton.clear()


def test_what_was_forgotten_is_not_found() -> None:
    automaton = SuffixAutomaton(100)
    automaton.add([1, 2, 3, 4])
    automaton.clear()
    automaton.add([7, 1, 8])
    place = Place(automaton)
    place.follow(array("i", [1, 2]))
    assert place.length == 0


def test_ngram_proposes_what_followed_the_latest_place() -> None:
    drafter = NgramDrafter()
    drafter.extend([1, 2, 3, 4, 5, 6, 1, 2, 3, 7, 8, 9, 1, 2, 3])
    draft = drafter.propose(3)
    assert draft is not None
    assert draft.tokens == (7, 8, 9)


def test_ngram_continues_a_loop_beyond_its_end() -> None:
    drafter = NgramDrafter()
    drafter.extend([5, 6, 7, 5, 6, 7])
    draft = drafter.propose(7)
    assert draft is not None
    assert draft.tokens == (5, 6, 7, 5, 6, 7, 5)


def test_ngram_has_no_idea_of_new_text() -> None:
    drafter = NgramDrafter()
    drafter.extend([1, 2, 3, 4, 5])
    assert drafter.propose(4) is None


def test_a_longer_match_is_of_a_higher_level() -> None:
    text = text_of(4, 40, alphabet=1000)
    drafter = NgramDrafter()
    levels = []
    drafter.extend(text)
    for token in text[:30]:
        drafter.extend([token])
        draft = drafter.propose(1)
        levels.append(draft.certainty[0] if draft else -1)
    assert levels == sorted(levels)
    assert levels[0] == -1
    assert levels[-1] > levels[3]


def test_suffix_remembers_texts_that_have_ended() -> None:
    seen = SeenText()
    text = text_of(5, 100, alphabet=1000)
    seen.add(text)
    drafter = SuffixDrafter(seen)
    drafter.extend([7777, *text[20:30]])
    draft = drafter.propose(5)
    assert draft is not None
    assert draft.tokens == tuple(text[30:35])


def test_suffix_follows_a_text_that_was_added_meanwhile() -> None:
    seen = SeenText()
    text = text_of(6, 60, alphabet=1000)
    drafter = SuffixDrafter(seen)
    drafter.extend(text[:10])
    assert drafter.propose(5) is None
    seen.add(text)
    drafter.extend(text[10:12])
    draft = drafter.propose(5)
    assert draft is not None
    assert draft.tokens == tuple(text[12:17])


def test_suffix_never_goes_beyond_the_end_of_a_text() -> None:
    seen = SeenText()
    seen.add([1, 2, 3, 4])
    seen.add([9, 9])
    drafter = SuffixDrafter(seen)
    drafter.extend([1, 2, 3])
    draft = drafter.propose(5)
    assert draft is not None
    assert draft.tokens == (4,)


def test_suffix_drafts_again_once_its_text_was_forgotten() -> None:
    seen, drafter = SeenText(max_tokens=64), None
    for seed in range(12):
        text = text_of(seed, 40, alphabet=1000)
        drafter = drafter or SuffixDrafter(seen)
        seen.add(text)
        drafter.extend(text[:20])
        draft = drafter.propose(3)
        assert draft is not None
        assert draft.tokens == tuple(text[20:23])
        seen.add(text_of(seed + 50, 40, alphabet=1000))
        seen.add(text_of(seed + 90, 40, alphabet=1000))
        assert drafter.propose(3) is None


def test_the_memory_of_seen_text_does_not_grow_with_it() -> None:
    seen = SeenText()
    for seed in range(12):
        seen.add(text_of(seed, 8_000, alphabet=30_000))
    before = resident_bytes()
    for seed in range(25):
        seen.add(text_of(seed, 8_000, alphabet=30_000))
    assert before is not None
    assert (resident_bytes() or 0) - before < 1 << 20


@pytest.mark.parametrize("length", [10, 30, 100])
def test_the_seen_text_is_bounded(length: int) -> None:
    seen = SeenText(max_tokens=64)
    for seed in range(20):
        seen.add(text_of(seed, length))
        assert seen.num_tokens <= 2 * (64 + 1)


@pytest.mark.parametrize(("least", "lengths"), [(0, (2, 4)), (3, (0, 4)), (5, (0, 0))])
def test_drafts_shorter_than_asked_for_are_not_checked(
    least: int, lengths: tuple[int, int]
) -> None:
    """What `--spec-draft-n-min` says: the first text leaves room for two drafts, the other four."""
    settings = SpeculationConfig(kinds=("ngram",), max_drafts=4, min_drafts=least)
    speculator = Speculator(settings, 8)
    sequences = [SequenceRequest(speculator.begin([1, 2, 3, 4, 5] * 4), most) for most in (2, 4)]
    assert speculator.choose(sequences).choice.lengths == lengths
