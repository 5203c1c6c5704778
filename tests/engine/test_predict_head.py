"""A model's head for multi-token prediction: against NumPy, and as a drafter that changes no text.

The files are the small references, with a head that `with_head` adds.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from plain_head import plain_head
from reference_ops import ReferenceOps
from requantise import requantise
from scheduled import asked, finish, submit
from with_head import with_head

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.sequence import Sequence
from sharpi.errors import UsageError
from sharpi.model.transformer import Transformer
from sharpi.model.weights import ModelWeights, load_weights
from sharpi.settings import USUAL_DRAFTS, ExpertConfig
from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
REFERENCES = Path(__file__).parents[1] / "references" / "data"
HEADS = REFERENCES.parent / "heads"
# The families whose files carry heads, and one whose block is plain.
FAMILIES = [
    *("glm4moe", "glm4.7-flash", "deepseek3", "qwen3next", "qwen35", "qwen35moe"),
    *("nemotron_h_moe", "nemotron_h_moe-latent", "hy_v3", "glm4moe-groups", "qwen3moe"),
    *("glm-dsa", "deepseek32"),
]
IDS = np.random.default_rng(7).integers(3, 280, 80).tolist()
MTP = Speculation(kinds=("mtp",), max_drafts=3)


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns a function that adds a head to a reference's file, once per file."""
    folder = tmp_path_factory.mktemp("heads")

    def make(case: str) -> Path:
        path = folder / f"{case}.gguf"
        return path if path.exists() else with_head(REFERENCES / f"{case}.gguf", path)

    return make


def error(found: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(found - reference) / np.linalg.norm(reference))


def answer(engine: Engine, prompt: list[int], num_tokens: int = 40) -> list[int]:
    generation = engine.session().generate(prompt, asked(num_tokens))
    list(generation)
    return generation.ids


def predicted(engine: Engine, ids: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The model's hidden states, and the head's output and logits after the last token but one."""
    Sequence(engine.runner).extend(ids)
    hidden = engine.runner.hidden.copy()
    assert engine.features.head is not None
    pages = np.arange(4, dtype=np.int32)
    out = engine.features.head.predict(np.array(ids[1:], np.int32), 0, pages, hidden[:-1])
    return hidden, out.hidden.copy(), out.logits.copy()


@pytest.mark.slow
@pytest.mark.parametrize("case", FAMILIES)
def test_the_head_agrees_with_the_numpy_reference(
    case: str, headed: Callable[[str], Path], load: Load
) -> None:
    engine = load(headed(case), speculation=MTP, precision="f32")
    hidden, out, logits = predicted(engine, IDS)
    ops, weights = ReferenceOps(), engine_weights(engine)
    ops.begin(IDS, 0, range(len(IDS)))
    model = Transformer(engine.model_config, weights, ops, keeps_hidden=True)
    model.step()
    assert model.hidden is not None
    assert error(hidden, model.hidden) < 2e-3
    ops = ReferenceOps()
    ops.begin(IDS[1:], 0, [len(IDS) - 2])
    assert weights.head is not None
    divisors = weights.rope_divisors
    want, want_logits = weights.head.step(ops, engine.model_config, hidden[:-1], divisors)
    assert error(out, want[0]) < 2e-3
    assert error(logits, want_logits[0]) < 2e-3


def engine_weights(engine: Engine) -> ModelWeights:
    return load_weights(engine.file, engine.model_config)


def answers(program: str) -> dict[str, np.ndarray]:
    with np.load(HEADS / f"{program}.npz") as arrays:  # by llama_cpp_heads.py and the other
        return {case: arrays[case] for case in arrays.files}


ANSWERS = {program: answers(program) for program in ("transformers", "llama_cpp")}


@pytest.mark.parametrize(
    ("program", "case"), [(program, case) for program in ANSWERS for case in ANSWERS[program]]
)
def test_the_head_answers_as_others_do(
    program: str, case: str, headed: Callable[[str], Path], load: Load
) -> None:
    """Compares the logits after each token, computed from the model's own hidden states."""
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids = arrays["tokens"].astype(np.int32)
    engine = load(headed(case), speculation=MTP, precision="f32")
    Sequence(engine.runner).extend(ids.tolist())
    hidden, head = engine.runner.hidden.copy(), engine.features.head
    assert head is not None
    pages = np.zeros(1, np.int32)
    found = [
        head.predict(ids[i + 1 : i + 2], i, pages, hidden[i : i + 1]).logits.copy()
        for i in range(len(ids) - 1)
    ]
    assert error(np.array(found), ANSWERS[program][case]) < 2e-3


def test_the_head_is_what_was_published(headed: Callable[[str], Path], load: Load) -> None:
    """Plain NumPy, derived from DeepSeek-V3's equations 21 to 23, gives the same numbers."""
    path = headed("qwen3moe")
    hidden, _, logits = predicted(load(path, speculation=MTP, precision="f32"), IDS)
    assert error(logits, plain_head(path, IDS[1:], hidden[:-1])[-1]) < 2e-3


@pytest.mark.parametrize("case", ["glm4moe", "qwen35moe"])
@pytest.mark.parametrize("precision", ["f32", "int8", "int16"])
def test_the_head_has_the_same_bits_in_any_passes(
    case: str, precision: str, headed: Callable[[str], Path], load: Load, tmp_path: Path
) -> None:
    path = requantise(headed(case), tmp_path / "q.gguf", GGMLQuantizationType.Q8_0)
    engine = load(path, speculation=MTP, precision=precision)
    hidden, out, logits = predicted(engine, IDS)
    head, pages = engine.features.head, np.arange(4, dtype=np.int32) + 8
    assert head is not None
    ids = np.array(IDS[1:], np.int32)
    for i in range(len(ids) - 1):
        head.fill(ids[i : i + 1], i, pages, hidden[i : i + 1])
    last = head.predict(ids[-1:], len(ids) - 1, pages, hidden[-2:-1])
    assert np.array_equal(last.hidden, out)
    assert np.array_equal(last.logits, logits)


@pytest.mark.slow
@pytest.mark.parametrize("case", FAMILIES)
@pytest.mark.parametrize("is_auto", [False, True])
def test_greedy_text_is_the_same(
    case: str, is_auto: bool, headed: Callable[[str], Path], load: Load
) -> None:
    plain = answer(load(case), IDS)
    kinds = ("ngram", "suffix", "mtp") if is_auto else ("mtp",)
    most = None if is_auto else 3
    speculation = Speculation(kinds=kinds, is_auto=is_auto, max_drafts=most)
    engine = load(headed(case), speculation=speculation)
    assert answer(engine, IDS) == plain
    if not is_auto:
        assert engine.speculator.statistics.kinds["mtp"].num_checked > 0


def test_drafts_of_a_head_that_knows_the_next_token_are_right(
    headed: Callable[[str], Path], load: Load
) -> None:
    engine = load(headed("qwen3moe"), speculation=MTP)
    answer(engine, IDS, 60)
    statistics = engine.speculator.statistics
    assert statistics.num_accepted > 0
    assert statistics.num_steps < 60


def test_a_conversation_and_others_that_begin_alike(
    headed: Callable[[str], Path], load: Load
) -> None:
    plain, drafting = load("qwen3moe"), load(headed("qwen3moe"), speculation=MTP)
    texts = []
    for engine in (plain, drafting):
        session, own = engine.session(), []
        prompt = IDS
        for _ in range(3):
            generation = session.generate(prompt, asked(30))
            list(generation)
            own.append(generation.ids)
            prompt = [*session.tokens[:70], *IDS[:9], *generation.ids]
        texts.append(own)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("case", ["qwen3next", "qwen3moe"])
def test_several_sequences_each_have_their_drafts(
    case: str, headed: Callable[[str], Path], load: Load
) -> None:
    prompts = [IDS[:30], IDS[10:50], (IDS * 2)[5:140]]
    plain = load(case)
    expected = [answer(plain, prompt, 25) for prompt in prompts]
    speculation = Speculation(kinds=("mtp",), max_drafts=6)
    # Pages for little more than two of the three: the youngest begins again.
    engine = load(headed(case), num_parallel=3, context_size=192, speculation=speculation)
    scheduler = Scheduler(engine, 3)
    heard = [submit(scheduler, prompt, asked(25)) for prompt in prompts]
    finish(scheduler)
    assert [each.ids for each in heard] == expected
    assert engine.speculator.statistics.num_checked > 0


@pytest.mark.parametrize("slots", [2, 3])
def test_the_heads_experts_have_slots_of_their_own(
    slots: int, headed: Callable[[str], Path], load: Load
) -> None:
    plain = answer(load("qwen3moe"), IDS)
    experts = ExpertConfig(policy="slru")
    engine = load(headed("qwen3moe"), speculation=MTP, moe_slots=slots, experts=experts)
    assert engine.streams_experts
    assert answer(engine, IDS) == plain
    assert engine.speculator.statistics.num_checked > 0
    stats = engine.expert_stats()
    assert stats is not None
    assert len(stats.layers) == engine.model_config.num_layers


def test_pages_on_disk_hold_the_heads_keys_and_values(
    headed: Callable[[str], Path], load: Load, tmp_path: Path
) -> None:
    prompt = (IDS * 3)[:200]
    plain = answer(load("qwen3moe"), prompt)
    options = {"speculation": MTP, "prompt_cache": tmp_path}
    for _ in range(2):
        engine = load(headed("qwen3moe"), **options)
        assert answer(engine, prompt) == plain
        engine.close()


def test_the_plan_has_the_head(headed: Callable[[str], Path], load: Load) -> None:
    path = headed("qwen3moe")
    engine, plain = load(path, speculation=MTP), load(path)
    assert engine.plan is not None
    assert plain.plan is not None
    assert len(engine.plan.layers) == len(plain.plan.layers) + 1
    head, last = engine.plan.layers[-1], plain.plan.layers[-1]
    assert head.kv_bytes == last.kv_bytes
    assert head.dense_weights_bytes > last.dense_weights_bytes
    assert head.reason.startswith("MTP head")
    assert engine.plan.speed.bytes_per_token == plain.plan.speed.bytes_per_token


def test_a_head_that_is_not_asked_for_is_named(headed: Callable[[str], Path], load: Load) -> None:
    engine = load(headed("glm4moe"))
    assert any("(MTP), not used" in note for note in engine.notes)
    assert not any("MTP" in note for note in load(headed("glm4moe"), speculation=MTP).notes)


def test_a_file_without_a_head_is_refused_by_name_only(load: Load) -> None:
    with pytest.raises(UsageError, match="no layer for multi-token prediction"):
        load("qwen3moe", speculation=MTP)
    auto = Speculation(kinds=("ngram", "mtp"), is_auto=True)
    assert load("qwen3moe", speculation=auto).features.head is None
    # This file has the key, and no tensors.
    assert load("glm4moe", speculation=auto).features.head is None


def test_a_trace_has_no_head(headed: Callable[[str], Path], load: Load, tmp_path: Path) -> None:
    experts = ExpertConfig(trace=tmp_path / "trace.npz")
    assert load(headed("qwen3moe"), speculation=MTP, experts=experts).features.head is None


def test_a_head_of_which_files_say_too_little_is_left_alone(
    headed: Callable[[str], Path], load: Load
) -> None:
    """K-EXAONE's head may have a window or none; a guess would only make bad drafts."""
    path = headed("exaone-moe")
    usual = load(path, speculation=USUAL_DRAFTS)
    assert usual.features.head is None
    assert answer(usual, IDS[:20], 4)
    with pytest.raises(UsageError, match="no layer for multi-token prediction that sharpi knows"):
        load(path, speculation=MTP)
