"""Grammars over the vocabularies of real models, if they are available."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from walks import follows, may_end, random_answer

from sharpi.constraints.grammars import Grammars
from sharpi.gguf.reader import open_gguf
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer

NAMES = ("gpt-2", "llama-bpe", "llama-spm", "qwen2", "deepseek-llm")
TEXT = '{"n\u00e9": "h\u00e9\u00e9 \U0001f600 \u4f60\u597d \\n x", "l": [1, 22,333]}'
SCHEMA = {
    "type": "object",
    "properties": {
        "n\u00e9": {"type": "string", "maxLength": 40},
        "l": {"type": "array", "items": {"type": "integer", "maximum": 999}, "maxItems": 3},
    },
    "required": ["n\u00e9", "l"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=NAMES)
def real(request: pytest.FixtureRequest) -> Tokenizer:
    root = os.environ.get("TESTS_SHARED")
    folder = (Path(root) if root else Path(__file__).parents[3] / "shared") / "tokenizers"
    if not folder.is_dir():
        pytest.skip("no shared development data; set SHARPI_SHARED")
    with open_gguf(folder / f"ggml-vocab-{request.param}.gguf") as file:
        return load_tokenizer(file.metadata)


@pytest.fixture(scope="module")
def grammars(real: Tokenizer) -> Grammars:
    return Grammars(real)


@pytest.mark.shared
def test_unicode_text_as_the_tokenizer_spells_it(real: Tokenizer, grammars: Grammars) -> None:
    constraint = grammars.json_schema(SCHEMA)
    assert follows(constraint, real, TEXT)
    assert may_end(constraint, real)


@pytest.mark.shared
@pytest.mark.parametrize("seed", range(3))
def test_any_walk_is_json(real: Tokenizer, grammars: Grammars, seed: int) -> None:
    answer = json.loads(random_answer(grammars.json_schema(SCHEMA), real, seed))
    assert list(answer) == ["n\u00e9", "l"]


@pytest.mark.shared
@pytest.mark.speed
def test_a_mask_costs_little(real: Tokenizer, grammars: Grammars) -> None:
    constraint, seconds = grammars.json_schema(SCHEMA), []
    for token in real.encode_inside(TEXT):
        begin = time.perf_counter()
        constraint.allowed()
        constraint.accept(token)
        seconds.append(time.perf_counter() - begin)
    assert np.median(seconds) < 0.001
