"""Drafts on a GPU: a check has the tokens of single steps; heads run on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from oracle import with_oracle
from with_head import with_head

from sharpi.engine.engine import Engine
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.engine.sequence import Sequence
from sharpi.ops.cuda.replay.program import GpuProgram
from sharpi.settings import USUAL_DRAFTS, ExpertConfig, GenerationRequest, SamplingParams
from sharpi.settings import SpeculationConfig as Speculation
from sharpi.tiers.plan import Tier

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
Load = Callable[..., Engine]
IDS = np.random.default_rng(7).integers(3, 280, 12).tolist()  # of which the head knows the next
REQUEST = GenerationRequest(max_tokens=8, ignore_end=True, sampling=SamplingParams(temperature=0))


def answer(engine: Engine, request: GenerationRequest = REQUEST) -> list[int]:
    generation = engine.session().generate(IDS, request)
    list(generation)
    return generation.ids


@pytest.mark.parametrize(("case", "layers"), [("qwen3moe", None), ("qwen3moe", 1)])
def test_greedy_text_is_the_same(case: str, layers: int | None, load: Load) -> None:
    options = {"context_size": 64, "gpu_layers": layers}
    path = REFERENCES / f"{case}.gguf"
    plain = answer(load(path, **options))
    engine = load(path, speculation=Speculation(kinds=("suffix",), max_drafts=3), **options)
    assert [answer(engine), answer(engine)] == [plain, plain]
    assert engine.speculator.statistics.num_accepted > 0


@pytest.mark.parametrize("slots", [None, 3])
@pytest.mark.parametrize("case", ["qwen3moe", "qwen3next"])
def test_a_gpu_goes_on_while_nothing_is_drafted(
    case: str, slots: int | None, load: Load, written: list[int]
) -> None:
    """A text that was not seen yet has no drafts, and the host writes its first token only."""
    experts = ExpertConfig(miss="bus", prefetch=False)
    options = {"context_size": 64, "moe_slots": slots, "experts": experts}
    path = REFERENCES / f"{case}.gguf"
    plain = answer(load(path, **options))
    speculation = Speculation(kinds=("suffix",), max_drafts=3)
    engine = load(path, speculation=speculation, **options)
    written.clear()
    assert answer(engine) == plain
    assert written == [len(IDS), 1]
    written.clear()
    assert answer(engine) == plain
    assert written == [len(IDS), 4, 3]


@pytest.mark.parametrize("case", ["qwen3moe", "qwen3next"])
def test_drafts_wait_for_a_step_that_has_begun(
    case: str, load: Load, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So only the last begun step is in vain. The text repeats itself, so there are drafts."""
    path, in_vain = REFERENCES / f"{case}.gguf", []
    discard = GpuProgram.discard_next

    def watched(self: GpuProgram) -> None:
        in_vain.extend([1] if self.is_ahead else [])
        discard(self)

    monkeypatch.setattr(GpuProgram, "discard_next", watched)
    request = msgspec.structs.replace(REQUEST, max_tokens=45)
    plain = answer(load(path, context_size=64), request)
    ngram = Speculation(kinds=("ngram",), max_drafts=3)
    engine = load(path, speculation=ngram, context_size=64)
    written.clear()
    in_vain.clear()
    assert answer(engine, request) == plain
    assert engine.speculator.statistics.num_accepted > 0
    assert 4 in written[1:]
    assert len(written) <= 5  # of 45 tokens
    assert len(in_vain) <= 1


def test_nothing_is_drafted_unless_it_is_asked_for(load: Load) -> None:
    engine = load(REFERENCES / "qwen3moe.gguf", context_size=64, speculation=USUAL_DRAFTS)
    assert engine.runner.settings.max_drafts == 0
    assert engine.speculator.max_drafts == 0


@pytest.fixture
def headed(tmp_path: Path) -> Path:
    return with_head(REFERENCES / "qwen3moe.gguf", tmp_path / "head.gguf")


HEAD = Speculation(kinds=("mtp",), max_drafts=3)
PLACES: dict[str, dict[str, Any]] = {
    "whole": {},
    "one layer": {"gpu_layers": 1},
    "slots": {"moe_slots": 3},
    "batches": {"batch_size": 5},
    "slots and batches": {"moe_slots": 3, "batch_size": 5},
}


@pytest.mark.parametrize("place", PLACES)
def test_an_mtp_head_drafts_on_the_cpu(place: str, headed: Path, load: Load) -> None:
    options = {"context_size": 64} | PLACES[place]
    plain = answer(load(headed, **options))
    engine = load(headed, speculation=HEAD, **options)
    assert engine.plan is not None
    assert engine.plan.layers[-1].dense_weights is Tier.RAM  # the head's
    assert [answer(engine), answer(engine)] == [plain, plain]
    statistics = engine.speculator.statistics.kinds["mtp"]
    assert statistics.num_accepted > 0


@pytest.mark.parametrize("place", PLACES)
def test_the_head_gets_the_hidden_states_of_all_tokens(
    place: str, headed: Path, load: Load
) -> None:
    engine = load(headed, context_size=64, speculation=HEAD, **PLACES[place])
    on_cpu = load(headed, context_size=64, speculation=HEAD, device="cpu")
    for each in (engine, on_cpu):
        Sequence(each.runner).extend(IDS)
    hidden, expected = engine.runner.hidden, on_cpu.runner.hidden
    count = len(hidden)  # those of the last batch
    assert count == (len(IDS) - 1) % engine.runner.prompt_batch + 1
    gap = np.linalg.norm(hidden - expected[-count:]) / np.linalg.norm(expected[-count:])
    assert gap < 0.02


def test_a_draft_model_drafts_beside_a_gpu(load: Load) -> None:
    path = REFERENCES / "qwen3moe.gguf"
    plain = answer(load(path, context_size=64))
    speculation = Speculation(kinds=("draft",), max_drafts=3, draft_model=path)
    engine = load(path, context_size=64, speculation=speculation)
    assert answer(engine) == plain
    assert engine.speculator.statistics.num_accepted > 0


def together(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    scheduler = Scheduler(engine, len(prompts))
    found: list[list[int]] = [[] for _ in prompts]
    for prompt, ids in zip(prompts, found, strict=True):
        scheduler.submit(
            prompt,
            REQUEST,
            on_delta=lambda delta, ids=ids: ids.extend(c.id for c in delta.tokens),  # type: ignore[misc]
            on_end=lambda info: None,
        )
    while scheduler.step():
        pass
    return found


def test_several_sequences_have_drafts_of_the_head(headed: Path, load: Load) -> None:
    prompts = [IDS, IDS[3:], IDS[5:]]
    texts = []
    for speculation in (Speculation(), HEAD):
        engine = load(headed, context_size=64, num_parallel=3, speculation=speculation)
        texts.append(together(engine, prompts))
    assert texts[0] == texts[1]
    assert engine.speculator.statistics.num_accepted > 0


RECURRENT: dict[str, dict[str, Any]] = {
    "qwen3next": {},
    "qwen3next beside the CPU": {"gpu_layers": 1},
    "qwen3next in slots": {"moe_slots": 3},
    "nemotron_h_moe": {},
    "lfm2moe": {},
}


@pytest.mark.parametrize("case", RECURRENT)
def test_recurrent_layers_take_wrong_drafts_back(case: str, load: Load) -> None:
    path, options = REFERENCES / f"{case.split()[0]}.gguf", {"context_size": 64} | RECURRENT[case]
    prompts = [IDS, IDS[3:]]
    plain = together(load(path, num_parallel=2, **options), prompts)
    drafts = Speculation(kinds=("draft",), max_drafts=4)
    engine = load(path, num_parallel=2, speculation=drafts, **options)
    texts = [prompt + ids for prompt, ids in zip(prompts, plain, strict=True)]
    with_oracle(engine, *texts, share_right=0.5)
    assert together(engine, prompts) == plain
    counts = engine.speculator.statistics
    assert 0 < counts.num_accepted < counts.num_checked


def test_the_head_of_a_recurrent_model_drafts(load: Load, tmp_path: Path) -> None:
    path = with_head(REFERENCES / "qwen3next.gguf", tmp_path / "recurrent.gguf")
    prompts = [IDS, IDS[3:], IDS[5:]]
    plain = together(load(path, context_size=64, num_parallel=3), prompts)
    engine = load(path, context_size=64, num_parallel=3, speculation=HEAD)
    assert together(engine, prompts) == plain
    assert engine.speculator.statistics.num_checked > 0


ASSISTED: dict[str, dict[str, Any]] = {
    "gemma4-moe": {},
    "gemma4-moe, one layer": {"gpu_layers": 1},
    "gemma4-moe, slots": {"moe_slots": 3},
    "gemma4-e2b": {},
    "gemma4-e2b, some layers": {"gpu_layers": 4},
}


@pytest.mark.parametrize("place", ASSISTED)
def test_an_assistant_reads_copies_of_the_keys_on_a_gpu(place: str, load: Load) -> None:
    """It predicts what transformers' assistant does, after every token of a prompt."""
    case, options = place.split(",")[0], ASSISTED[place]
    beside = REFERENCES.parent / "heads" / f"{case}-assistant"
    path, speculation = (
        REFERENCES / f"{case}.gguf",
        Speculation(kinds=("mtp",), max_drafts=3, draft_model=beside.with_suffix(".gguf")),
    )
    engine = load(path, precision="f32", speculation=speculation, **options)
    with np.load(path.with_suffix(".npz")) as model, np.load(beside.with_suffix(".npz")) as own:
        ids, want = model["tokens"].astype(np.int32), own["logits"]
    Sequence(engine.runner).extend(ids.tolist())
    hidden, head, pages = engine.runner.hidden.copy(), engine.features.head, np.zeros(1, np.int32)
    assert head is not None
    assert engine.plan is not None
    copies = engine.runner.settings.num_pages * head.pages.page_bytes
    assert engine.plan.layers[-1].kv_bytes == copies > 0
    for i in range(len(ids) - 1):
        found = head.predict(ids[i + 1 : i + 2], i, pages, hidden[i : i + 1]).logits
        assert np.linalg.norm(found - want[i, 0]) < 2e-2 * np.linalg.norm(want[i, 0])


def test_keys_of_8_bits_are_read_back(load: Load) -> None:
    path, places = REFERENCES / "llama-biases.gguf", (0, 0, 3, 9)
    found = []
    for kv_type in ("f16", "q8_0"):
        engine = load(path, precision="f32", kv_type=kv_type)
        Sequence(engine.runner).extend(IDS)
        found.append(engine.runner.parts[-1].cache.read_positions(*places))
    for half, eighth in zip(*found, strict=True):
        assert half.shape == eighth.shape
        assert half.shape[0] == 6
        assert 1e-4 < np.linalg.norm(half - eighth) / np.linalg.norm(half) < 1e-2


@pytest.mark.parametrize("case", ["gemma4-moe", "gemma4-e2b"])
def test_an_assistant_changes_no_text_on_a_gpu(case: str, load: Load) -> None:
    """Three sequences, one longer than a page of keys, then the first again from its prefix."""
    beside = REFERENCES.parent / "heads" / f"{case}-assistant.gguf"
    speculation = Speculation(kinds=("mtp",), max_drafts=3, draft_model=beside)
    path, options = REFERENCES / f"{case}.gguf", {"context_size": 192, "num_parallel": 3}
    prompts = [IDS * 6, IDS[3:], IDS[5:]]
    plain, engine = load(path, **options), load(path, speculation=speculation, **options)
    expected = together(plain, prompts)
    assert [together(engine, prompts), together(engine, prompts)] == [expected, expected]
    counts = engine.speculator.statistics.kinds["mtp"]
    assert counts.num_accepted > counts.num_checked / 3
