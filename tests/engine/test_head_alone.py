"""A head for multi-token prediction from a file of its own, which `--spec-draft-model` names."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from head_alone import head_alone
from scheduled import asked
from with_head import with_head

from sharpi.engine.engine import Engine
from sharpi.engine.head_choice import choose_head
from sharpi.engine.loader import load_engine
from sharpi.errors import ModelFileError, UnsupportedModelError, UsageError
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.settings import RunConfig
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
REFERENCES = Path(__file__).parents[1] / "references" / "data"
FAMILIES = ["nemotron_h_moe", "glm4moe", "deepseek3", "qwen3next", "qwen35moe", "qwen3moe"]
IDS = np.random.default_rng(7).integers(3, 280, 80).tolist()


def drafting(path: Path, *kinds: str) -> Speculation:
    return Speculation(kinds=kinds or ("mtp",), max_drafts=3, draft_model=path)  # type: ignore[arg-type]


def answer(engine: Engine) -> list[int]:
    generation = engine.session().generate(IDS, asked(40))
    list(generation)
    return generation.ids


def counts(engine: Engine) -> tuple[int, int]:
    statistics = engine.speculator.statistics.kinds["mtp"]
    return statistics.num_checked, statistics.num_accepted


@pytest.mark.slow
@pytest.mark.parametrize("case", FAMILIES)
def test_it_drafts_what_the_head_in_the_models_file_drafts(
    case: str, load: Load, tmp_path: Path
) -> None:
    whole = with_head(REFERENCES / f"{case}.gguf", tmp_path / "whole.gguf")
    alone = head_alone(whole, tmp_path / "mtp-head.gguf")
    beside = load(case, speculation=drafting(alone))
    within = load(whole, speculation=Speculation(kinds=("mtp",), max_drafts=3))
    assert answer(beside) == answer(within) == answer(load(case))
    assert counts(beside) == counts(within)
    assert counts(beside)[0] > 0


@pytest.fixture
def head(tmp_path: Path) -> Path:
    """Returns a head of qwen3moe in a file of its own."""
    whole = with_head(REFERENCES / "qwen3moe.gguf", tmp_path / "whole.gguf")
    return head_alone(whole, tmp_path / "mtp-head.gguf")


@pytest.mark.parametrize("kinds", [("draft",), ("ngram", "suffix", "mtp", "draft")])
def test_any_kind_that_a_second_file_serves_asks_for_it(
    kinds: tuple[str, ...], head: Path, load: Load
) -> None:
    engine = load("qwen3moe", speculation=drafting(head, *kinds))
    assert answer(engine) == answer(load("qwen3moe"))
    assert counts(engine)[0] > 0


def test_its_experts_have_slots_of_their_own(head: Path, load: Load) -> None:
    engine = load("qwen3moe", speculation=drafting(head), moe_slots=3)
    assert engine.streams_experts
    assert answer(engine) == answer(load("qwen3moe"))
    assert counts(engine)[0] > 0


def test_the_plan_has_it(head: Path, load: Load) -> None:
    engine, plain = load("qwen3moe", speculation=drafting(head)), load("qwen3moe")
    assert engine.plan is not None
    assert plain.plan is not None
    assert len(engine.plan.layers) == len(plain.plan.layers) + 1
    assert engine.plan.layers[-1].reason.startswith("MTP head")


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("qwen2moe", "architecture is qwen3moe there, and qwen2moe in the model"),
        ("llama", "architecture is qwen3moe there"),
    ],
)
def test_a_head_of_another_model_is_refused(
    case: str, message: str, head: Path, load: Load
) -> None:
    with pytest.raises(UsageError, match=message):
        load(case, speculation=drafting(head))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_count": 9}, "layers is 8 there"),
        ({"embedding_length": 32}, "embedding_length is 32 there"),
    ],
)
def test_a_head_of_another_size_is_refused(
    changes: dict[str, int], message: str, head: Path, load: Load, tmp_path: Path
) -> None:
    other = head_alone(tmp_path / "whole.gguf", tmp_path / "other.gguf", **changes)
    with pytest.raises(UsageError, match=message):
        load("qwen3moe", speculation=drafting(other))


def test_a_head_with_other_tokens_is_refused(head: Path, load: Load, tmp_path: Path) -> None:
    data = head.read_bytes()
    other = tmp_path / "other.gguf"
    token = b"\x01\0\0\0\0\0\0\0" + b"d"
    assert token in data
    other.write_bytes(data.replace(token, token[:-1] + b"\x7e", 1))
    with pytest.raises(UsageError, match="both need the same vocabulary"):
        load("qwen3moe", speculation=drafting(other))


def test_a_head_without_its_projection_is_refused(head: Path, load: Load, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(head.read_bytes().replace(b"nextn.eh_proj", b"nextn.xx_proj"))
    with pytest.raises(UsageError, match=r"other\.gguf holds a head of a kind"):
        load("qwen3moe", speculation=drafting(other))


def test_a_misshapen_tensor_names_the_heads_file(head: Path, load: Load, tmp_path: Path) -> None:
    data, other = head.read_bytes(), tmp_path / "other.gguf"
    names = (b"nextn.enorm", b"attn_q_norm")  # of different sizes
    swapped = names[1].join(part.replace(names[1], names[0]) for part in data.split(names[0]))
    other.write_bytes(swapped)
    with pytest.raises(ModelFileError, match=r"other\.gguf: tensor blk.*norm.* is"):
        load("qwen3moe", speculation=drafting(other))


def test_a_file_that_ends_early_is_named(head: Path, load: Load, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(head.read_bytes()[: head.stat().st_size // 2])
    with pytest.raises(ModelFileError, match=r"cut\.gguf"):
        load("qwen3moe", speculation=drafting(cut))


def test_a_head_is_no_model(head: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"a head that drafts.*--spec-draft-model"):
        load_engine(RunConfig(model=head))


@pytest.mark.parametrize(
    ("places", "changes", "reason"),
    [
        ({"is_shared": True, "is_first": False}, {}, "the first machine has it"),
        ({}, {"kv_keep": 256}, "it needs the keys and values that --kv-keep drops"),
    ],
)
def test_where_it_cannot_run_a_note_says_why(
    head: Path, places: dict[str, bool], changes: dict[str, int], reason: str
) -> None:
    config = RunConfig(model=REFERENCES / "qwen3moe.gguf", speculation=drafting(head), **changes)
    with open_gguf(config.model) as file:
        chosen = choose_head(file, read_config(file), config, has_gpu=False, **places)
        assert chosen.file is file  # as the other machines have it
    assert not chosen.model.has_head
    assert chosen.config.speculation.draft_model is None
    assert chosen.notes == (f"the MTP head does not draft: {reason}",)
