"""Text with drafts is the text without, whatever is drafted and however the text is chosen."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from oracle import Oracle, with_oracle
from scheduled import GREEDY, asked, assert_nothing_is_left, finish, submit

from sharpi.constraints.constraint import Constraint
from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import UsageError
from sharpi.settings import DraftKind, ExpertConfig, GenerationRequest, SamplingParams
from sharpi.settings import SpeculationConfig as Speculation
from sharpi.speculation.draft import Draft

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
RECURRENT = ["lfm2moe", "qwen3next", "qwen35", "granitehybrid", "nemotron_h_moe"]
OTHERS = ["gpt-oss", "gemma3", "deepseek3", "llama4", "qwen3moe"]
IDS = np.random.default_rng(7).integers(3, 280, 80).tolist()
DEMO = Path(__file__).parents[2] / "models" / "demo" / "stories-moe.gguf"
FIXED = Speculation(kinds=("draft",), max_drafts=4)


def answer(
    engine: Engine, prompt: list[int], request: GenerationRequest, constraint: Constraint | None
) -> tuple[list[int], str]:
    session = engine.session()
    generation = session.generate(prompt, request, constraint=constraint)
    text = "".join(generation)
    session.reset()
    return generation.ids, text


@pytest.mark.parametrize("case", [*RECURRENT, *OTHERS])
def test_greedy_text_of_every_family_is_the_same(case: str, load: Load) -> None:
    request = asked(40)
    plain, text = answer(load(case), IDS, request, None)
    engine = with_oracle(load(case, speculation=FIXED), IDS + plain)
    assert answer(engine, IDS, request, None) == (plain, text)
    statistics = engine.speculator.statistics
    assert 0 < statistics.num_accepted < statistics.num_checked
    assert statistics.num_steps < 40
    runner = engine.runner
    states = sorted(runner.states._free + runner.states_after._free)
    assert states == list(range(len(states)))


@pytest.mark.parametrize("case", ["qwen3next", "qwen3moe"])
def test_a_conversation_goes_on_after_drafts_that_were_wrong(case: str, load: Load) -> None:
    """What a wrong draft has left in the KV cache and the states is never used."""
    sessions = []
    for speculation in (Speculation(), FIXED):
        engine = load(case, speculation=speculation)
        if sessions:
            with_oracle(engine, *(IDS + ids for ids in sessions[0]), share_right=0.5)
        session, texts = engine.session(), list[list[int]]()
        first = session.generate(IDS, asked(30))
        list(first)
        texts.append(first.ids)
        second = session.generate([*session.tokens, *IDS[:5]], asked(30))
        list(second)
        texts.append(second.ids)
        sessions.append(texts)
    assert sessions[0] == sessions[1]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(temperature=1.0, seed=5),
        SamplingParams(temperature=1.5, seed=5, top_k=5, repeat_penalty=1.3),
        SamplingParams(temperature=0, presence_penalty=0.5, frequency_penalty=0.5),
    ],
    ids=["sampled", "top-k and penalty", "greedy with penalties"],
)
def test_sampled_text_of_a_seed_is_the_same(sampling: SamplingParams, load: Load) -> None:
    request = asked(40, sampling=sampling, num_logprobs=3)
    plain = load("qwen3moe").session().generate(IDS, request)
    list(plain)
    engine = with_oracle(load("qwen3moe", speculation=FIXED), IDS + plain.ids)
    drafted = engine.session().generate(IDS, request)
    list(drafted)
    assert drafted.choices == plain.choices
    assert engine.speculator.statistics.num_accepted > 0


def test_sampled_tokens_are_as_frequent_as_without_drafts(load: Load) -> None:
    """A draft that is always the same token does not make that token more likely."""
    sampling = {"temperature": 1.0, "top_k": 3, "top_p": 1.0, "min_p": 0.0}
    engine = load("qwen3moe", speculation=FIXED)
    greedy, _ = answer(engine, IDS, asked(2), None)
    with_oracle(engine, [*IDS, *greedy], share_right=1.0)
    counts: dict[tuple[int, ...], int] = {}
    session = engine.session()
    for seed in range(400):
        request = asked(2, sampling=SamplingParams(seed=seed, **sampling))  # type: ignore[arg-type]
        generation = session.generate(IDS, request)
        list(generation)
        counts[tuple(generation.ids)] = counts.get(tuple(generation.ids), 0) + 1
    expected = expected_pairs(engine, sampling)
    assert set(counts) <= set(expected)
    for pair, chance in expected.items():
        deviation = (400 * chance * (1 - chance)) ** 0.5
        assert abs(counts.get(pair, 0) - 400 * chance) < 5 * deviation + 1


def expected_pairs(engine: Engine, sampling: dict[str, float]) -> dict[tuple[int, ...], float]:
    """Computes the chance of each pair of tokens after the prompt, from the model's logits."""
    pairs = {}
    for first, chance in chances(engine, IDS).items():
        for second, other in chances(engine, [*IDS, first]).items():
            pairs[first, second] = chance * other
    return pairs


def chances(engine: Engine, ids: list[int]) -> dict[int, float]:
    logits = engine.logits(np.array(ids, np.int32))[-1].astype(np.float64)
    best = np.argsort(-logits)[:3]
    weights = np.exp(logits[best] - logits[best].max())
    return dict(zip(best.tolist(), (weights / weights.sum()).tolist(), strict=True))


class Even:
    """Allows even tokens only, and counts what it accepted."""

    def __init__(self, num_ids: int) -> None:
        bits = np.arange(num_ids) % 2 == 0
        self._mask = np.packbits(bits, bitorder="little")
        self._mask = np.pad(self._mask, (0, -len(self._mask) % 4)).view(np.uint32)
        self.accepted: list[int] = []

    def allowed(self) -> np.ndarray:
        return self._mask

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def test_a_constraint_sees_the_chosen_tokens_only(load: Load) -> None:
    engine = load("qwen3moe")
    plain, _ = answer(engine, IDS, asked(30), Even(engine.runner.vocab_size))
    engine = with_oracle(load("qwen3moe", speculation=FIXED), IDS + plain)
    constraint = Even(engine.runner.vocab_size)
    drafted, _ = answer(engine, IDS, asked(30), constraint)
    assert drafted == plain == constraint.accepted
    assert engine.speculator.statistics.num_accepted > 0


def test_a_stop_string_ends_the_answer_within_a_draft(load: Load) -> None:
    engine = load("qwen3moe")
    plain, text = answer(engine, IDS, asked(40), None)
    stop = text[len(text) // 2 :][:3]
    request = asked(40, stop=(stop,))
    expected = answer(engine, IDS, request, None)
    engine = with_oracle(load("qwen3moe", speculation=FIXED), IDS + plain, share_right=1.0)
    assert answer(engine, IDS, request, None) == expected


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 7])
def test_an_answer_has_no_more_tokens_than_asked_for(num_tokens: int, load: Load) -> None:
    plain, _ = answer(load("qwen3moe"), IDS, asked(12), None)
    engine = with_oracle(load("qwen3moe", speculation=FIXED), IDS + plain, share_right=1.0)
    assert answer(engine, IDS, asked(num_tokens), None)[0] == plain[:num_tokens]


def test_a_full_context_ends_the_answer_where_it_would(load: Load) -> None:
    options = {"context_size": len(IDS) + 20}
    plain = load("qwen3moe", **options).session().generate(IDS, asked(40))
    list(plain)
    engine = load("qwen3moe", speculation=FIXED, **options)
    drafted = with_oracle(engine, IDS + plain.ids, share_right=1.0).session()
    generation = drafted.generate(IDS, asked(40))
    list(generation)
    assert (generation.ids, generation.finish_reason) == (plain.ids, plain.finish_reason)
    assert generation.finish_reason == "context"


@pytest.mark.parametrize("case", ["qwen3next", "qwen3moe"])
def test_several_sequences_share_a_step_with_their_drafts(case: str, load: Load) -> None:
    prompts = [IDS[:30], IDS[10:50], IDS[5:40]]
    plain_engine = load(case)
    expected = [answer(plain_engine, prompt, asked(25), None) for prompt in prompts]
    engine = load(case, num_parallel=3, speculation=FIXED)
    texts = [prompt + ids for prompt, (ids, _) in zip(prompts, expected, strict=True)]
    with_oracle(engine, *texts)
    scheduler = Scheduler(engine, 3)
    heard = [submit(scheduler, prompt, asked(25)) for prompt in prompts]
    num_steps = finish(scheduler)
    assert [(each.ids, each.text) for each in heard] == expected
    assert num_steps < 25
    assert engine.speculator.statistics.num_accepted > 0
    if engine.runner.states.size == 0:
        assert_nothing_is_left(scheduler, engine)


class EveryOther(Oracle):
    """Drafts at every other step."""

    is_its_turn = False

    def propose(self, most: int) -> Draft | None:
        self.is_its_turn = not self.is_its_turn
        return None if self.is_its_turn else super().propose(most)


def test_states_of_wrong_drafts_are_free_for_the_next_step(load: Load) -> None:
    """The first sequence takes all drafts of a step after one that checked the second's."""
    request, prompts = asked(12), [IDS[:20], IDS[20:50]]
    alone = [answer(load("qwen3next"), prompt, request, None)[0] for prompt in prompts]
    engine = load("qwen3next", speculation=FIXED, num_parallel=2)
    texts = [prompt + ids for prompt, ids in zip(prompts, alone, strict=True)]
    turns = iter([EveryOther(texts, 0.0), Oracle(texts, 0.0)])
    engine.speculator._model_drafters = lambda: [next(turns)]
    scheduler = Scheduler(engine, 2)
    heard = [submit(scheduler, prompt, request) for prompt in prompts]
    finish(scheduler)
    assert [each.ids for each in heard] == alone
    assert engine.speculator.statistics.num_accepted == 0


@pytest.mark.parametrize("slots", [2, 6])
def test_experts_in_few_slots_give_the_same_text(
    slots: int, load: Load, quick_demo: object
) -> None:
    options = {"moe_slots": slots, "context_size": 256, "experts": ExpertConfig(policy="slru")}
    prompt = IDS[:20]
    plain, _ = answer(load(quick_demo), prompt, asked(40), None)
    engine = with_oracle(load(quick_demo, speculation=FIXED, **options), prompt + plain)
    assert answer(engine, prompt, asked(40), None)[0] == plain


@pytest.mark.parametrize("kinds", [("ngram",), ("suffix",), ("ngram", "suffix")])
@pytest.mark.parametrize("is_auto", [True, False])
def test_draftless_kinds_give_the_same_text(
    kinds: tuple[DraftKind, ...], is_auto: bool, load: Load
) -> None:
    prompt = (IDS[:12] * 3)[:30]
    plain, _ = answer(load("qwen3moe"), prompt, asked(60), None)
    engine = load("qwen3moe", speculation=Speculation(kinds=kinds, is_auto=is_auto))
    for _ in range(2):
        assert answer(engine, prompt, asked(60), None)[0] == plain
    if not is_auto:
        assert engine.speculator.statistics.kinds[kinds[-1]].num_accepted > 0


def test_without_kinds_nothing_is_drafted(load: Load) -> None:
    engine = load("qwen3moe")
    answer(engine, IDS, asked(5, sampling=GREEDY), None)
    assert engine.speculator.statistics.num_steps == 0
    assert engine.runner.settings.max_drafts == 0


@pytest.mark.parametrize("is_auto", [True, False])
def test_a_draft_model_gives_the_same_text(is_auto: bool, load: Load) -> None:
    """A model that drafts for itself is always right, where the two compute alike."""
    plain = load("qwen3moe")
    speculation = Speculation(
        kinds=("draft",), is_auto=is_auto, max_drafts=3, draft_model=plain.file.path
    )
    engine = load("qwen3moe", speculation=speculation)
    session = engine.session()
    for prompt in (IDS[:30], IDS[:40], IDS[20:50]):
        expected, _ = answer(plain, prompt, asked(20), None)
        generation = session.generate(prompt, asked(20))
        list(generation)
        assert generation.ids == expected
    if not is_auto:
        statistics = engine.speculator.statistics
        assert statistics.num_accepted > 0.9 * statistics.num_checked > 0


def test_a_draft_model_for_several_sequences(load: Load) -> None:
    plain = load("qwen3moe")
    prompts = [IDS[:30], IDS[10:50]]
    expected = [answer(plain, prompt, asked(20), None)[0] for prompt in prompts]
    speculation = Speculation(kinds=("draft",), max_drafts=6, draft_model=plain.file.path)
    engine = load("qwen3moe", num_parallel=2, speculation=speculation)
    scheduler = Scheduler(engine, 2)
    for _ in range(2):
        heard = [submit(scheduler, prompt, asked(20)) for prompt in prompts]
        assert finish(scheduler) < 20
        assert [each.ids for each in heard] == expected


def test_a_draft_model_of_another_vocabulary_is_refused(load: Load) -> None:
    other = load("llama").file.path
    with pytest.raises(UsageError, match=r"cannot draft for .* token \d+ is"):
        load(DEMO, speculation=Speculation(kinds=("draft",), draft_model=other))
