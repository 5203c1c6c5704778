"""Answers of a required form, with drafts: real schemas and grammars over a real vocabulary."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sharpi.constraints.constraint import Constraint
from sharpi.constraints.grammars import Grammars
from sharpi.engine.engine import Engine
from sharpi.settings import GenerationRequest, SamplingParams
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
DEMO = Path(__file__).parents[2] / "models" / "demo" / "stories-moe.gguf"
SCHEMA = {
    "type": "object",
    "properties": {
        "names": {"type": "array", "items": {"enum": ["Lily", "Tom"]}, "minItems": 6},
        "count": {"type": "integer"},
    },
    "required": ["names", "count"],
    "additionalProperties": False,
}
GBNF = 'root ::= line line line line\nline ::= "- " [A-Z] [a-z]+ " went home.\\n"'
FORMS: dict[str, Callable[[Grammars], Constraint]] = {
    "schema": lambda grammars: grammars.json_schema(SCHEMA),
    "object": lambda grammars: grammars.json_object(),
    "gbnf": lambda grammars: grammars.gbnf(GBNF),
    "regex": lambda grammars: grammars.lark("start: /(Lily saw the cat[.] ){8}/"),
}


def answers(engine: Engine, form: str, temperature: float, **asked: Any) -> list[Any]:
    """Two answers one after the other, of which the second repeats the first."""
    grammars, found = Grammars(engine.tokenizer), []
    prompt = engine.tokenizer.encode("Once upon a time", add_bos=True, parse_special=False)
    sampling = SamplingParams(temperature=temperature, seed=4)
    for _ in range(2):
        request = GenerationRequest(max_tokens=60, sampling=sampling, **asked)
        constraint = FORMS[form](grammars)
        generation = engine.session().generate(prompt, request, constraint=constraint)
        text = "".join(generation)
        found.append((generation.ids, text, generation.finish_reason, generation.choices))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "temperature"), [("schema", 0.0), ("object", 1.0), ("gbnf", 0.0), ("regex", 1.0)]
)
def test_answers_are_those_without_drafts(form: str, temperature: float, load: Load) -> None:
    plain = answers(load(DEMO), form, temperature)
    drafting = Speculation(kinds=("ngram", "suffix"), max_drafts=4)
    engine = load(DEMO, speculation=drafting)
    assert answers(engine, form, temperature) == plain
    assert engine.speculator.statistics.num_accepted > 0
    auto = load(DEMO, speculation=Speculation(kinds=("ngram", "suffix"), is_auto=True))
    assert answers(auto, form, temperature) == plain


@pytest.mark.slow
def test_chances_of_constrained_tokens_are_the_same(load: Load) -> None:
    plain = answers(load(DEMO), "schema", 0.7, num_logprobs=2)
    engine = load(DEMO, speculation=Speculation(kinds=("suffix",), max_drafts=4))
    assert answers(engine, "schema", 0.7, num_logprobs=2) == plain
    assert engine.speculator.statistics.num_accepted > 0
