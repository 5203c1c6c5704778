"""Every kind of drafts with every way to choose tokens: the answers are those without drafts."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scheduled import GREEDY, asked, finish, submit
from with_head import with_head

from sharpi.constraints.constraint import Constraint
from sharpi.constraints.grammars import Grammars
from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.settings import DraftKind, RunConfig, SamplingParams
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[1] / "references" / "data"
KINDS: tuple[DraftKind, ...] = ("ngram", "suffix", "mtp", "draft")
PROMPT = (np.random.default_rng(7).integers(3, 280, 12).tolist() * 3)[:30]
SAMPLED = SamplingParams(temperature=0.7, seed=5)
FEW = tuple((token, 12.0) for token in (40, 41, 42))  # the text repeats these, so kinds have ideas
SCHEMA = {"type": "array", "items": {"enum": ["Lily", "Tom"]}, "minItems": 4, "maxItems": 6}
SIZES: dict[str, Any] = {"context_size": 192, "num_parallel": 3}
Answer = list[Any]


def penalised(temperature: float) -> SamplingParams:
    return SamplingParams(
        temperature=temperature,
        seed=5,
        repeat_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.1,
    )


# Each way: what is asked for, and the form that the answer must have.
WAYS: dict[str, tuple[dict[str, Any], Callable[[Grammars], Constraint] | None]] = {
    "greedy": ({}, None),
    "sampled": ({"sampling": SAMPLED, "logit_bias": FEW}, None),
    "schema": ({"sampling": SAMPLED}, lambda grammars: grammars.json_schema(SCHEMA)),
    "gbnf": ({}, lambda grammars: grammars.gbnf('root ::= ("ab " | "abc ")+')),
    "logprobs": ({"sampling": SAMPLED, "num_logprobs": 3, "logit_bias": FEW}, None),
    "penalties": ({"sampling": penalised(0.0), "logit_bias": FEW}, None),
    "penalties and chance": ({"sampling": penalised(0.7), "logit_bias": FEW}, None),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("headed")
    return with_head(REFERENCES / "qwen3moe.gguf", folder / "headed.gguf")


@pytest.fixture(scope="module")
def drafters(model: Path) -> dict[str, tuple[Path, Speculation]]:
    """Returns, for each kind, a model and the setting that requests drafts of this kind only."""
    found = {kind: (model, Speculation(kinds=(kind,), max_drafts=6)) for kind in KINDS}
    found["draft"] = model, Speculation(kinds=("draft",), max_drafts=6, draft_model=model)
    beside = REFERENCES.parent / "heads" / "gemma4-moe-assistant.gguf"
    assistant = Speculation(kinds=("mtp",), max_drafts=6, draft_model=beside)
    return found | {"assistant": (REFERENCES / "gemma4-moe.gguf", assistant)}


@pytest.fixture(scope="module", params=[*KINDS, "assistant"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def plain(kind: str, drafters: dict[str, tuple[Path, Speculation]]) -> Iterator[Engine]:
    with load_engine(RunConfig(model=drafters[kind][0], **SIZES)) as engine:
        yield engine


@pytest.fixture(scope="module")
def drafting(kind: str, drafters: dict[str, tuple[Path, Speculation]]) -> Iterator[Engine]:
    path, speculation = drafters[kind]
    with load_engine(RunConfig(model=path, speculation=speculation, **SIZES)) as engine:
        yield engine


def answers(engine: Engine, way: str, num_tokens: int = 40, **more: Any) -> list[Answer]:
    """Asks the same question twice, since some drafters remember the first answer."""
    fields, form = WAYS[way]
    found = []
    for _ in range(2):
        constraint = None if form is None else form(Grammars(engine.tokenizer))
        session = engine.session()
        request = asked(num_tokens, **(fields | more))
        generation = session.generate(PROMPT, request, constraint=constraint)
        text = "".join(generation)
        session.reset()
        found.append([generation.ids, text, generation.finish_reason, generation.choices])
    return found


def num_checked(engine: Engine) -> int:
    return engine.speculator.statistics.num_checked


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_answer_is_the_same(way: str, plain: Engine, drafting: Engine) -> None:
    before = num_checked(drafting)
    assert answers(drafting, way) == answers(plain, way)
    assert num_checked(drafting) > before


def test_a_stop_string_ends_it_at_the_same_place(plain: Engine, drafting: Engine) -> None:
    text = answers(plain, "greedy")[0][1]
    for at in (len(text) // 3, len(text) // 2):
        expected = answers(plain, "greedy", stop=(text[at : at + 3],))
        assert answers(drafting, "greedy", stop=(text[at : at + 3],)) == expected
        assert expected[0][2] == "stop"


@pytest.mark.slow
@pytest.mark.parametrize("is_greedy", [True, False])
def test_several_answers_to_one_prompt(is_greedy: bool, plain: Engine, drafting: Engine) -> None:
    """Like a server's `n` answers: each has its own seed, and they share steps."""
    found = []
    for engine in (plain, drafting):
        scheduler = Scheduler(engine, 3)
        samplings = [GREEDY if is_greedy else SamplingParams(seed=seed) for seed in (7, 8, 9)]
        heard = [
            submit(scheduler, PROMPT, asked(25, sampling=sampling, num_logprobs=1))
            for sampling in samplings
        ]
        finish(scheduler)
        found.append([(each.ids, each.text, each.finish_info.reason) for each in heard])
    assert found[0] == found[1]
