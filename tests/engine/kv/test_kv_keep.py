"""`--kv-keep`: prompts of which heads keep some positions, alone, together and cached."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference_ops import ReferenceOps
from scheduled import alone, asked, assert_nothing_is_left, finish, submit

from sharpi.engine.engine import Engine
from sharpi.engine.kv.kv_choice import kv_notes
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import UsageError
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.transformer import Transformer
from sharpi.model.weights import load_weights
from sharpi.ops.cpu.kv_cache import KEEP_WINDOW, kv_bytes
from sharpi.resources import demo_model
from sharpi.settings import SpeculationConfig

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
PROMPT, KEPT = 300, 64


def ids(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(300, 1500, count).tolist()


@pytest.fixture
def engine(load: Load, quick_demo: Path) -> Engine:
    return load(quick_demo, kv_keep=KEPT, context_size=512, num_parallel=3)


@pytest.mark.slow
def test_logits_after_a_cut_are_those_of_the_reference(load: Load, quick_demo: Path) -> None:
    prompt = 2 * KEPT + 20
    tokens = ids(prompt + 6)
    engine = load(quick_demo, kv_keep=KEPT, context_size=512, precision="f32")
    logits = engine.logits(np.array(tokens, np.int32), prompt)[prompt:]
    ops = ReferenceOps()
    weights = load_weights(engine.file, engine.model_config)
    model = Transformer(engine.model_config, weights, ops)
    for begin, end in ((0, prompt - KEEP_WINDOW), (prompt - KEEP_WINDOW, prompt)):
        ops.begin(tokens[begin:end], begin, [0])
        model.step()
    ops.keep(KEPT)
    for at, own in enumerate(logits, prompt):
        ops.begin(tokens[at : at + 1], at, [0])
        expected = model.step()[0]
        assert np.linalg.norm(own - expected) < 2e-2 * np.linalg.norm(expected)


def test_a_prompt_that_fits_is_kept_whole(load: Load, quick_demo: Path) -> None:
    whole = load(quick_demo, context_size=512)
    cut = load(quick_demo, context_size=512, kv_keep=PROMPT)
    assert alone(cut, ids(PROMPT), asked()) == alone(whole, ids(PROMPT), asked())
    tokens = np.array(ids(PROMPT), np.int32)
    assert (cut.logits(tokens, PROMPT) == whole.logits(tokens)).all()


def test_only_tokens_after_the_prompt_miss_what_was_dropped(load: Load, quick_demo: Path) -> None:
    tokens = np.array(ids(PROMPT + 5), np.int32)
    whole, cut = (load(quick_demo, context_size=512, kv_keep=kept) for kept in (None, KEPT))
    is_same = (cut.logits(tokens, PROMPT) == whole.logits(tokens)).all(axis=1)
    assert is_same[:PROMPT].all()
    assert not is_same[PROMPT:].any()


@pytest.mark.slow
def test_requests_that_run_together_are_as_alone(engine: Engine) -> None:
    prompts = [ids(PROMPT, 1), ids(PROMPT - 7, 2), ids(40, 3), ids(PROMPT, 1)]
    expected = [alone(engine, each, asked()) for each in prompts]
    scheduler = Scheduler(engine, 3)
    heard = [submit(scheduler, each, asked()) for each in prompts]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    assert_nothing_is_left(scheduler, engine)


def test_a_cut_text_has_the_pages_of_what_it_keeps(engine: Engine) -> None:
    scheduler = Scheduler(engine, 1)
    heard = submit(scheduler, ids(PROMPT), asked(2))
    while not heard.deltas:
        scheduler.step()
    assert scheduler.cache.num_in_use == KEPT // 64
    # Whole pages, for prompts that begin the same.
    assert scheduler.cache.num_evictable == -(-PROMPT // 64)
    finish(scheduler)
    assert scheduler.cache.num_in_use == 0


def test_the_next_turn_begins_with_the_whole_prompt_before(engine: Engine) -> None:
    session = engine.session()
    first = session.generate(ids(PROMPT), asked(8))
    list(first)
    longer = [*ids(PROMPT), *first.ids, *ids(50, 4)]
    second = session.generate(longer, asked(8))
    text = "".join(second)
    assert second.timings.num_cached_tokens == PROMPT
    assert (text, second.ids) == alone(engine, longer, asked(8))


def test_drafts_change_nothing(load: Load, quick_demo: Path) -> None:
    repeated = ids(60) * 5
    options = {"kv_keep": KEPT, "context_size": 512}
    drafts = SpeculationConfig(kinds=("ngram",), max_drafts=4)
    plain, drafted = load(quick_demo, **options), load(quick_demo, speculation=drafts, **options)
    assert alone(drafted, repeated, asked(60)) == alone(plain, repeated, asked(60))


@pytest.mark.slow
def test_a_request_that_gives_way_is_cut_where_it_was(load: Load, quick_demo: Path) -> None:
    options = {"kv_keep": KEPT, "context_size": 448, "num_parallel": 3}
    expected = [alone(load(quick_demo, **options), ids(PROMPT, i), asked(80)) for i in range(3)]
    tight = load(quick_demo, ram=11 << 20, **options)
    assert tight.runner.pages.size == 7 + 1
    scheduler = Scheduler(tight, 3)
    heard = [submit(scheduler, ids(PROMPT, i), asked(80)) for i in range(3)]
    finish(scheduler)
    assert [(each.text, each.ids) for each in heard] == expected
    assert_nothing_is_left(scheduler, tight)


def test_whole_pages_go_to_disk_and_come_back(load: Load, quick_demo: Path, tmp_path: Path) -> None:
    options = {"kv_keep": KEPT, "context_size": 512, "prompt_cache": tmp_path}
    expected = alone(load(quick_demo, kv_keep=KEPT, context_size=512), ids(PROMPT), asked())
    first = load(quick_demo, **options)
    assert alone(first, ids(PROMPT), asked()) == expected
    first.close()
    again = load(quick_demo, **options)
    generation = again.session().generate(ids(PROMPT), asked())
    assert "".join(generation) == expected[0]
    assert generation.timings.num_cached_tokens == (PROMPT - KEEP_WINDOW) // 64 * 64


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        ("gpt-oss", {}, "window of positions"),
        ("qwen3next", {}, "recurrent layers"),
        ("deepseek2-lite", {}, "latent attention"),
        ("qwen3moe", {"context_shift": True}, "--context-shift"),
        ("qwen3moe", {"device": "cuda"}, "on a GPU are all kept"),
        ("qwen3moe", {"kv_keep": 63}, "give 64 at least"),
    ],
)
def test_what_cannot_drop_keys_is_refused(
    model: str, options: dict[str, object], reason: str, load: Load
) -> None:
    with pytest.raises(UsageError, match=reason):
        load(model, **{"kv_keep": KEPT} | options)


DATA = Path(__file__).parents[2] / "references" / "data"


def notes(path: Path) -> list[str]:
    with open_gguf(path) as file:
        return list(kv_notes(read_config(file), 4096))


def test_every_type_that_the_heads_can_have() -> None:
    """The demo has 6 layers of 2 KV heads of 64."""
    (line,) = notes(demo_model())
    assert line.startswith("keys and values of 4096 positions, once all are used: f16 12.0 MiB, ")
    assert "q8_0 6.4 MiB" in line
    assert "turbo3 2.4 MiB" in line


def test_heads_that_are_no_blocks_have_f16_alone() -> None:
    (line,) = notes(DATA / "mixtral.gguf")
    assert "f16" in line
    assert "q8_0" not in line


def test_layers_with_windows_save_what_they_do_not_keep() -> None:
    with open_gguf(DATA / "gpt-oss.gguf") as file:
        model = read_config(file)
    whole, limited = (list(kv_notes(model, 4096, pages)) for pages in (0, 8))
    assert "keep those before it too" in whole[1]
    assert "keep 512 at most" in limited[1]
    sizes = [kv_bytes(model.attention, 4096, window_pages=pages) for pages in (0, 8)]
    in_windows = sum(bool(shape.window) for shape in model.attention) / len(model.attention)
    assert sizes[1] == pytest.approx(sizes[0] * (1 - in_windows * 7 / 8))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("deepseek3", "latent attention"),
        ("granitehybrid", "keep a state of"),
        ("gemma3", "read a window of"),
    ],
)
def test_what_types_do_not_change(name: str, said: str) -> None:
    assert any(said in line for line in notes(DATA / f"{name}.gguf"))
