"""Gemma 4's assistant: against transformers and NumPy, and as a drafter that changes no text.

`transformers_assistants.py` made the small assistants of two references.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference_ops import ReferenceOps
from scheduled import asked, finish, submit

from sharpi.engine import settings
from sharpi.engine.engine import Engine
from sharpi.engine.head_choice import choose_head
from sharpi.engine.loader import load_engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.sequence import Sequence
from sharpi.errors import ModelFileError, UnsupportedModelError, UsageError
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.transformer import Transformer
from sharpi.model.weights import load_weights
from sharpi.settings import ExpertConfig, RunConfig
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
DATA = Path(__file__).parents[1] / "references" / "data"
HEADS = DATA.parent / "heads"
CASES = ["gemma4-moe", "gemma4-e2b"]
IDS = np.random.default_rng(7).integers(3, 280, 80).tolist()


def assistant(case: str) -> Path:
    return HEADS / f"{case}-assistant.gguf"


def drafting(path: Path, *kinds: str, most: int = 3) -> Speculation:
    return Speculation(kinds=kinds or ("mtp",), max_drafts=most, draft_model=path)  # type: ignore[arg-type]


def answer(engine: Engine, prompt: list[int] = IDS, num_tokens: int = 40) -> list[int]:
    generation = engine.session().generate(prompt, asked(num_tokens))
    list(generation)
    return generation.ids


def counts(engine: Engine) -> tuple[int, int]:
    statistics = engine.speculator.statistics.kinds["mtp"]
    return statistics.num_checked, statistics.num_accepted


def error(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens (tokens,) of a case, and transformers' logits of two drafts after each."""
    with np.load(DATA / f"{case}.npz") as model, np.load(HEADS / f"{case}-assistant.npz") as own:
        return model["tokens"].astype(np.int32), own["logits"]


@pytest.mark.parametrize("case", CASES)
def test_two_drafts_after_every_token_are_those_of_transformers(case: str, load: Load) -> None:
    ids, want = expected(case)
    engine = load(case, speculation=drafting(assistant(case)), precision="f32")
    Sequence(engine.runner).extend(ids.tolist())
    hidden, head, pages = engine.runner.hidden.copy(), engine.features.head, np.zeros(1, np.int32)
    assert head is not None
    for i in range(len(ids) - 1):
        first = head.predict(ids[i + 1 : i + 2], i, pages, hidden[i : i + 1])
        assert error(first.logits, want[i, 0]) < 2e-3
        token = np.array([first.logits.argmax()], np.int32)
        second = head.predict(token, i, pages, first.hidden[None].copy())
        assert error(second.logits, want[i, 1]) < 2e-3


@pytest.mark.parametrize("case", CASES)
def test_the_numpy_reference_agrees_with_transformers(case: str, load: Load) -> None:
    ids, want = expected(case)
    engine = load(case, speculation=drafting(assistant(case)))
    config, weights = engine.model_config, load_weights(engine.file, engine.model_config)
    assert weights.head is not None
    for length in (5, len(ids) - 1):  # within a window, and beyond
        ops = ReferenceOps()
        ops.begin(ids[:length].tolist(), 0, [length - 1])
        model = Transformer(config, weights, ops, keeps_hidden=True)
        model.step()
        assert model.hidden is not None
        ops.begin(ids[length : length + 1].tolist(), length, [0])
        ops.num_dropped = 1  # keys end before the token's own position
        hidden = model.hidden[-1:]
        following, logits = weights.head.step(ops, config, hidden, weights.rope_divisors)
        assert error(logits[0], want[length - 1, 0]) < 2e-3
        ops.ids = logits.argmax(-1)
        _, logits = weights.head.step(ops, config, following, weights.rope_divisors)
        assert error(logits[0], want[length - 1, 1]) < 2e-3


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("precision", ["f32", "int8", "int16"])
def test_greedy_text_is_the_same(case: str, precision: str, load: Load) -> None:
    engine = load(case, speculation=drafting(assistant(case)), precision=precision)
    assert answer(engine) == answer(load(case, precision=precision))
    checked, accepted = counts(engine)
    assert accepted > checked / 2


@pytest.mark.parametrize("kinds", [("draft",), ("ngram", "suffix", "mtp", "draft")])
def test_any_kind_that_a_second_file_serves_asks_for_it(kinds: tuple[str, ...], load: Load) -> None:
    engine = load("gemma4-moe", speculation=drafting(assistant("gemma4-moe"), *kinds))
    assert answer(engine) == answer(load("gemma4-moe"))
    assert counts(engine)[0] > 0


@pytest.mark.parametrize("case", CASES)
def test_several_sequences_each_have_their_drafts(case: str, load: Load) -> None:
    prompts = [IDS[:30], IDS[10:50], (IDS * 2)[5:140]]
    plain = load(case)
    texts = [answer(plain, prompt, 25) for prompt in prompts]
    # Pages for little more than two of the three: the youngest begins again.
    speculation = drafting(assistant(case), most=6)
    engine = load(case, num_parallel=3, context_size=192, speculation=speculation)
    scheduler = Scheduler(engine, 3)
    heard = [submit(scheduler, prompt, asked(25)) for prompt in prompts]
    finish(scheduler)
    assert [each.ids for each in heard] == texts
    assert counts(engine)[0] > 0


def test_a_model_whose_experts_are_on_disk(load: Load) -> None:
    speculation, experts = drafting(assistant("gemma4-moe")), ExpertConfig(policy="slru")
    engine = load("gemma4-moe", speculation=speculation, moe_slots=3, experts=experts)
    assert engine.streams_experts
    assert answer(engine) == answer(load("gemma4-moe"))
    assert counts(engine)[0] > 0


def test_dropped_windows_change_no_draft(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values outside of all windows are dropped; the assistant never reads them."""
    case, prompt = "gemma4-e2b", (IDS * 8)[:600]
    options = {"context_size": 2048, "batch_size": 64, "speculation": drafting(assistant(case))}
    drops = load(case, **options)
    monkeypatch.setattr(settings, "window_pages", lambda *_: 0)
    keeps = load(case, **options)
    assert drops.runner.settings.window_pages
    assert not keeps.runner.settings.window_pages
    assert answer(drops, prompt, 150) == answer(keeps, prompt, 150)
    assert counts(drops) == counts(keeps)
    assert counts(drops)[0] > 0


def test_the_plan_has_it(load: Load) -> None:
    engine = load("gemma4-moe", speculation=drafting(assistant("gemma4-moe")))
    plain = load("gemma4-moe")
    assert engine.plan is not None
    assert plain.plan is not None
    own = engine.plan.layers[-1]
    assert len(engine.plan.layers) == len(plain.plan.layers) + 1
    assert own.reason.startswith("MTP head")
    assert own.kv_bytes == 0  # it reads the model's
    assert 200_000 < own.dense_weights_bytes < assistant("gemma4-moe").stat().st_size
    assert engine.plan.speed.bytes_per_token == plain.plan.speed.bytes_per_token
    assert not any("not used" in note for note in engine.notes)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("gemma3", "architecture is gemma4 there, and gemma3 in the model"),
        ("qwen3moe", "architecture is gemma4 there, and qwen3moe in the model"),
    ],
)
def test_an_assistant_of_another_model_is_refused(case: str, message: str, load: Load) -> None:
    with pytest.raises(UsageError, match=message):
        load(case, speculation=drafting(assistant("gemma4-moe")))


def test_it_needs_keys_that_it_can_read() -> None:
    """A GPU's keys of few bits, and those of other machines, are out of its reach."""
    config = RunConfig(
        model=DATA / "gemma4-moe.gguf",
        key_type="q4_0",
        speculation=drafting(assistant("gemma4-moe")),
    )
    places = ({"has_gpu": False}, {"has_gpu": True}, {"has_gpu": False, "is_shared": True})
    with open_gguf(config.model) as file:
        chosen = [choose_head(file, read_config(file), config, **each) for each in places]
    assert [each.model.has_head for each in chosen] == [True, False, False]
    assert [each.notes[0].split(" keys that ")[1] for each in chosen[1:]] == [
        "a GPU keeps in few bits",
        "other machines keep",
    ]


def changed(source: bytes, old: bytes, new: bytes, path: Path) -> Path:
    assert source.count(old) == 1
    path.write_bytes(source.replace(old, new))
    return path


def test_an_assistant_of_another_size_is_refused(load: Load, tmp_path: Path) -> None:
    data, key = assistant("gemma4-moe").read_bytes(), b"embedding_length_out\x04\0\0\0"
    other = changed(data, key + b"\x20", key + b"\x40", tmp_path / "other.gguf")
    with pytest.raises(UsageError, match="embedding_length is 64 there, and 32 in the model"):
        load("gemma4-moe", speculation=drafting(other))


def test_heads_that_fit_no_keys_are_named(load: Load, tmp_path: Path) -> None:
    data, key = assistant("gemma4-moe").read_bytes(), b"attention.key_length\x04\0\0\0"
    other = changed(data, key + b"\x20", key + b"\x40", tmp_path / "other.gguf")
    with pytest.raises(
        ModelFileError, match=r"other\.gguf: layer 2 has 4 heads of 64, which do not"
    ):
        load("gemma4-moe", speculation=drafting(other))


def test_a_missing_tensor_names_the_assistants_file(load: Load, tmp_path: Path) -> None:
    data = assistant("gemma4-moe").read_bytes()
    name = b"nextn.post_projection"
    other = changed(data, name, name.replace(b"post", b"xxxx"), tmp_path / "other.gguf")
    with pytest.raises(ModelFileError, match=r"assistant\.nextn\.post_projection.* is missing"):
        load("gemma4-moe", speculation=drafting(other))


def test_an_assistant_is_no_model() -> None:
    with pytest.raises(UnsupportedModelError, match=r"a head that drafts.*--spec-draft-model"):
        load_engine(RunConfig(model=assistant("gemma4-moe")))
