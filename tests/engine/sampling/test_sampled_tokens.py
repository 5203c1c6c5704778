"""Bias, constraint and log-probabilities, alone and in a generation."""

from collections.abc import Callable

import numpy as np
import pytest

from sharpi.constraints.constraint import TokenMask
from sharpi.engine.engine import Engine
from sharpi.engine.sampling.sampler import Sampler
from sharpi.errors import UsageError
from sharpi.settings import GenerationRequest, SamplingParams

Load = Callable[..., Engine]
GREEDY = SamplingParams(temperature=0)
LOGITS = np.array([0.5, 3, 1, 2, -1], np.float32)
PROMPT = [5, 17, 99, 3, 42]


class Only:
    """Allows the listed tokens at each position, and remembers the chosen ones."""

    def __init__(self, *places: list[int], num_words: int = 1) -> None:
        self._places, self._num_words = list(places), num_words
        self.accepted: list[int] = []

    def allowed(self) -> TokenMask | None:
        if len(self.accepted) >= len(self._places):
            return None
        mask = np.zeros(self._num_words, np.uint32)
        for token in self._places[len(self.accepted)]:
            mask[token // 32] |= np.uint32(1 << token % 32)
        return mask

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def asked(**fields: object) -> GenerationRequest:
    fields.setdefault("sampling", GREEDY)
    return GenerationRequest(**fields)  # type: ignore[arg-type]


def test_a_bias_moves_the_choice_and_not_the_logprobs() -> None:
    sampler = Sampler(asked(logit_bias=((0, 9.0), (1, -100.0)), num_logprobs=2))
    choice = sampler.choose(LOGITS)
    exact = np.log(np.exp(LOGITS) / np.exp(LOGITS).sum())
    assert choice.id == 0
    assert choice.logprob == pytest.approx(exact[0])
    assert [i for i, _ in choice.alternatives] == [1, 3]
    assert [x for _, x in choice.alternatives] == pytest.approx([exact[1], exact[3]])
    assert LOGITS[1] == 3


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (99, 5)])
def test_as_many_alternatives_as_there_are(count: int, expected: int) -> None:
    choice = Sampler(asked(num_logprobs=count)).choose(LOGITS)
    assert len(choice.alternatives) == expected
    assert choice.logprob is not None
    assert Sampler(asked()).choose(LOGITS).logprob is None


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(seed=1, temperature=3.0, top_k=0)])
def test_only_what_is_allowed_is_chosen(sampling: SamplingParams) -> None:
    only = Only([4, 2], [4], [0, 3])
    sampler = Sampler(asked(sampling=sampling), constraint=only)
    chosen = [sampler.choose(LOGITS).id for _ in range(3)]
    assert chosen == only.accepted
    assert chosen[0] in (4, 2)
    assert chosen[1] == 4
    assert chosen[2] in (0, 3)
    assert Sampler(asked(), constraint=Only()).choose(LOGITS).id == 1


def test_a_constraint_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(UsageError, match="allows none"):
        Sampler(asked(), constraint=Only([])).choose(LOGITS)


def test_a_mask_may_be_shorter_than_the_rows_of_logits() -> None:
    logits = np.arange(70, dtype=np.float32)
    assert Sampler(asked(), constraint=Only([3, 31])).choose(logits).id == 31
    assert Sampler(asked(), constraint=Only([3, 40], num_words=3)).choose(logits).id == 40


@pytest.mark.parametrize(
    "fields", [{"num_logprobs": 0}, {"logit_bias": ((1, 1.0),)}], ids=["logprobs", "bias"]
)
def test_the_largest_logit_alone_is_not_enough(fields: dict[str, object]) -> None:
    assert Sampler(asked()).takes_largest
    assert not Sampler(asked(**fields)).takes_largest
    assert not Sampler(asked(), constraint=Only()).takes_largest


@pytest.mark.native
def test_a_generation_keeps_to_its_constraint(load: Load) -> None:
    engine = load("qwen3moe")
    places = [[7, 70], [200, 8], [99]]
    only = Only(*places, num_words=9)
    generation = engine.session().generate(
        PROMPT, asked(max_tokens=5, num_logprobs=3), constraint=only
    )
    text = "".join(generation)
    assert all(token in place for token, place in zip(generation.ids, places, strict=False))
    assert [choice.id for choice in generation.choices] == only.accepted
    assert text == engine.tokenizer.decode(generation.ids)
    logits = engine.logits(np.array([*PROMPT, *generation.ids[:-1]], np.int32))[len(PROMPT) - 1 :]
    for row, choice in zip(logits, generation.choices, strict=True):
        assert choice.alternatives[0][0] == row.argmax()
        assert choice.logprob == pytest.approx(row[choice.id] - np.log(np.exp(row).sum()), abs=1e-4)


@pytest.mark.native
def test_logprobs_and_an_idle_bias_change_no_greedy_token(load: Load) -> None:
    engine = load("olmoe")
    requests = [
        asked(max_tokens=9, **f) for f in ({}, {"num_logprobs": 1}, {"logit_bias": ((3, 0.0),)})
    ]
    answers = [engine.session().generate(PROMPT, request) for request in requests]
    texts = ["".join(answer) for answer in answers]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.native
def test_control_tokens_are_shown_where_that_is_asked(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load("llama")
    whole = engine.session().generate(PROMPT, asked(max_tokens=6, ignore_end=True))
    list(whole)
    names = {i: engine.tokenizer.token_bytes(i).decode("utf-8", "replace") for i in whole.ids}
    hidden = next(i for i, name in names.items() if name)
    monkeypatch.setattr(type(engine.tokenizer), "hidden_ids", frozenset({hidden}))
    monkeypatch.setattr(type(engine.tokenizer), "is_hidden", lambda _, i: i == hidden)
    monkeypatch.setattr(type(engine.tokenizer), "end_ids", frozenset())
    plain, shown = (
        "".join(engine.session().generate(PROMPT, asked(max_tokens=6, shows_special=shows)))
        for shows in (False, True)
    )
    assert shown == whole.text
    assert len(shown) > len(plain)


@pytest.mark.native
def test_a_biased_token_must_be_the_models(load: Load) -> None:
    with pytest.raises(UsageError, match=r"0\.\.287"):
        load("llama").session().generate(PROMPT, asked(logit_bias=((288, 1.0),)))
