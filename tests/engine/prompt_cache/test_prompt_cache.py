"""Answers with a prompt cache on disk are those without one, whatever lies in its folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scheduled import Heard, asked, finish, submit

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.prompt_cache import record
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[2] / "references" / "data"
# Full attention, windows, latent attention, and recurrent states of several kinds.
FAMILIES = (
    "qwen3moe", "gemma3", "gpt-oss", "deepseek2-lite", "glm4.7-flash", "llama4", "qwen3next",
    "granitehybrid", "lfm2moe", "nemotron_h_moe", "gemma4-e2b",
)  # fmt: skip
PROMPT = np.random.default_rng(1).integers(3, 280, 170).tolist()
Load = Callable[..., Engine]


def ask(model: Path | str, prompt: list[int], **options: object) -> tuple[list[int], int, str]:
    """Loads the model, and returns its answer, the tokens found, and the notes at the end."""
    path = model if isinstance(model, Path) else REFERENCES / f"{model}.gguf"
    config = RunConfig(model=path, context_size=256, **options)  # type: ignore[arg-type]
    with load_engine(config) as engine:
        generation = engine.session().generate(prompt, asked(6))
        list(generation)
        ids, cached = generation.ids, generation.timings.num_cached_tokens
    return ids, cached, "\n".join(engine.exit_notes)


def records(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_next_turn_is_the_same_after_a_restart(family: str, tmp_path: Path) -> None:
    first, cached, _ = ask(family, PROMPT, prompt_cache=tmp_path)
    assert cached == 0
    longer = [*PROMPT, *first, 7, 8, 9]
    expected, _, _ = ask(family, longer)
    answer, cached, notes = ask(family, longer, prompt_cache=tmp_path)
    assert (answer, notes) == (expected, "")
    assert cached >= len(PROMPT) + len(first) - 1


def test_logits_are_bit_for_bit_the_same(tmp_path: Path, load: Load) -> None:
    first, _, _ = ask("qwen3next", PROMPT, prompt_cache=tmp_path)
    request = asked(3, num_logprobs=5)
    answers = []
    for options in ({}, {"prompt_cache": tmp_path}):
        engine = load("qwen3next", context_size=256, **options)
        generation = engine.session().generate([*PROMPT, *first, 7], request)
        list(generation)
        answers.append(generation.choices)
    assert generation.timings.num_cached_tokens > 100
    assert answers[0] == answers[1]


def test_another_model_quantisation_or_precision_finds_nothing(tmp_path: Path) -> None:
    ask("llama", PROMPT, prompt_cache=tmp_path)
    again = {"prompt_cache": tmp_path}
    assert ask("llama", PROMPT, **again)[1] > 0
    assert ask("llama", PROMPT, precision="f32", **again)[1] == 0
    assert ask("llama", PROMPT, instruction_set="portable", **again)[1] == 0
    assert ask("llama-biases", PROMPT, **again)[1] == 0


def test_another_type_of_keys_and_values_finds_nothing(tmp_path: Path) -> None:
    again = {"prompt_cache": tmp_path}
    ask("llama-256", PROMPT, kv_type="q8_0", **again)
    assert ask("llama-256", PROMPT, **again)[1] == 0
    assert ask("llama-256", PROMPT, kv_type="q8_0", **again)[1] > 0


def test_one_changed_byte_of_the_weights_is_another_model(tmp_path: Path) -> None:
    model, folder = tmp_path / "m.gguf", tmp_path / "kept"
    content = bytearray((REFERENCES / "llama.gguf").read_bytes())
    model.write_bytes(content)
    ask(model, PROMPT, prompt_cache=folder)
    moved = model.rename(tmp_path / "moved.gguf")
    ask(moved, PROMPT, prompt_cache=folder)  # reads the whole file, as it is not known there
    assert ask(moved, PROMPT, prompt_cache=folder)[1] > 0
    content[-1000] ^= 1
    moved.write_bytes(content)
    ask(moved, PROMPT[:70], prompt_cache=folder)
    assert ask(moved, PROMPT, prompt_cache=folder)[1] == 64


def test_pages_are_shared_by_texts_that_begin_alike(tmp_path: Path) -> None:
    ask("qwen3moe", PROMPT, prompt_cache=tmp_path)
    before = len(records(tmp_path))
    other = [*PROMPT[:130], *PROMPT[:20]]
    expected, _, _ = ask("qwen3moe", other)
    answer, cached, _ = ask("qwen3moe", other, prompt_cache=tmp_path)
    assert (answer, cached) == (expected, 128)
    assert len(records(tmp_path)) == before + 1


def test_a_turn_replaces_the_partial_page_of_the_one_before(tmp_path: Path) -> None:
    first, _, _ = ask("qwen3moe", PROMPT, prompt_cache=tmp_path)
    before = len(records(tmp_path))
    ask("qwen3moe", [*PROMPT, *first, 5], prompt_cache=tmp_path)
    assert len(records(tmp_path)) == before


damages: dict[str, Callable[[Path], None]] = {
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "flipped": lambda path: path.write_bytes(path.read_bytes()[:-9] + b"?" * 9),
    "foreign": lambda path: path.write_bytes(b"what somebody put here"),
    "folder": lambda path: (path.unlink(), path.mkdir())[1],
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", damages)
@pytest.mark.parametrize("family", ["qwen3moe", "qwen3next"])
def test_a_damaged_file_is_noted_and_replaced(family: str, damage: str, tmp_path: Path) -> None:
    first, _, _ = ask(family, PROMPT, prompt_cache=tmp_path)
    longer = [*PROMPT, *first, 3, 4]
    expected = ask(family, longer)[0]
    for path in records(tmp_path):
        damages[damage](path)
    answer, cached, notes = ask(family, longer, prompt_cache=tmp_path)
    assert (answer, cached) == (expected, 0)
    assert "the prompt cache ignored" in notes
    if damage != "folder":
        following = [*longer, *answer, 5]
        assert ask(family, following, prompt_cache=tmp_path)[1:] == (len(following) - 2, "")


faults = st.lists(
    st.tuples(
        st.integers(0, 9),  # of the file
        st.sampled_from(["flip", "cut", "swap", "remove", "zero"]),
        st.floats(0, 1),  # where in it
    ),
    max_size=4,
)


@pytest.mark.slow
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(faults=faults, length=st.integers(60, 176), family=st.sampled_from(["llama", "qwen3next"]))
def test_random_faults_never_change_an_answer(
    faults: list, length: int, family: str, pristine: dict, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, prompt = tmp_path_factory.mktemp("kept"), [*pristine[family, "text"][:length], 4]
    model = next(path for path in pristine[family, "files"] if path.parent.name.startswith("model"))
    for path, content in pristine[family, "files"].items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    names = sorted((folder / model.parent).glob("*.kv"))
    for number, kind, place in faults:
        path, other = names[number % len(names)], names[(number + 1) % len(names)]
        content = bytearray(path.read_bytes() if path.exists() else b"")
        at = min(int(place * len(content)), max(0, len(content) - 1))
        if kind == "remove":
            path.unlink(missing_ok=True)
        elif kind == "swap" and path.exists() and other.exists():
            path.write_bytes(other.read_bytes())
        elif kind == "cut":
            path.write_bytes(content[:at])
        elif kind == "zero":
            path.write_bytes(content[:at] + bytes(len(content) - at))
        elif kind == "flip" and content:
            content[at] ^= 16
            path.write_bytes(content)
    engine: Engine = pristine[family, "plain"]
    session = engine.session()
    generation = session.generate(prompt, asked(6))
    list(generation)
    session.reset()
    assert ask(family, prompt, prompt_cache=folder)[0] == generation.ids


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """Returns for two families the files of a cache, its text, and an engine without one."""
    found: dict = {}
    for family in ("llama", "qwen3next"):
        folder = tmp_path_factory.mktemp("pristine")
        for length in (70, 110, 140, 170):  # each leaves a state of recurrent layers
            answer, _, _ = ask(family, PROMPT[:length], prompt_cache=folder)
        files = [path for path in folder.rglob("*") if path.is_file()]
        found[family, "files"] = {path.relative_to(folder): path.read_bytes() for path in files}
        found[family, "text"] = [*PROMPT, *answer]
        path = REFERENCES / f"{family}.gguf"
        found[family, "plain"] = load_engine(RunConfig(model=path, context_size=256))
    return found


def together(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    scheduler = Scheduler(engine, 3)
    heard: list[Heard] = [submit(scheduler, prompt, asked(6)) for prompt in prompts]
    finish(scheduler)
    return [each.ids for each in heard]


@pytest.mark.parametrize("family", ["qwen3moe", "qwen3next"])
def test_requests_that_share_steps_share_the_folder(
    family: str, tmp_path: Path, load: Load
) -> None:
    prompts = [PROMPT, [*PROMPT[:100], 5], PROMPT[64:150]]
    few = {"num_parallel": 3, "context_size": 256}
    expected = together(load(family, **few), prompts)
    for _ in range(2):
        engine = load(family, prompt_cache=tmp_path, **few)
        assert together(engine, prompts) == expected
        engine.close()
        assert engine.exit_notes == ()
    assert records(tmp_path)


@pytest.mark.parametrize("family", ["qwen3moe", "qwen3next"])
def test_what_was_evicted_from_memory_comes_back(family: str, tmp_path: Path, load: Load) -> None:
    texts = [np.random.default_rng(seed).integers(3, 280, 120).tolist() for seed in range(6)]
    engine = load(family, context_size=192, prompt_cache=tmp_path)
    plain = load(family, context_size=192)
    session, alone = engine.session(), plain.session()
    for text in [*texts, *texts]:
        answers = []
        for each in (session, alone):
            generation = each.generate(text, asked(4))
            list(generation)
            answers.append(generation.ids)
        assert answers[0] == answers[1]
    engine.close()
    assert len(records(tmp_path)) >= len(texts)


def test_a_state_comes_back_to_pages_that_are_in_memory(tmp_path: Path, load: Load) -> None:
    engine = load("qwen3next", num_parallel=2, context_size=512, prompt_cache=tmp_path)
    plain = load("qwen3next", num_parallel=2, context_size=512)
    texts = [PROMPT[: 30 * count] for count in range(2, 6)]
    others = [PROMPT[40 + count :] for count in range(6)]  # take the states, not the pages
    answers = []
    for each in (engine, plain):
        scheduler = Scheduler(each, 2)
        heard = []
        for prompt in [*texts, *others, *texts, [*texts[1], 5], [*texts[2], 6]]:
            heard.append(submit(scheduler, prompt, asked(3)))
            finish(scheduler)
        answers.append([one.ids for one in heard])
    assert answers[0] == answers[1]
    assert engine.runner.states.num_free + 5 >= engine.runner.states.size


def test_the_budget_holds_and_the_oldest_text_leaves(tmp_path: Path) -> None:
    texts = [np.random.default_rng(seed).integers(3, 280, 130).tolist() for seed in range(4)]
    ask("qwen3moe", texts[0], prompt_cache=tmp_path)
    size = sum(path.stat().st_size for path in records(tmp_path))
    budget = {"prompt_cache": tmp_path, "prompt_cache_bytes": 2 * size}
    for text in texts[1:]:
        ask("qwen3moe", text, **budget)
        assert sum(path.stat().st_size for path in records(tmp_path)) <= 2 * size
    cached = [ask("qwen3moe", text, **budget)[1] for text in (texts[3], texts[0])]
    assert cached[0] > 0
    assert cached[1] == 0


def test_a_smaller_budget_holds_although_nothing_is_written(tmp_path: Path) -> None:
    texts = [np.random.default_rng(seed).integers(3, 280, 130).tolist() for seed in range(3)]
    for text in texts:
        ask("qwen3moe", text, prompt_cache=tmp_path)
    size = sum(path.stat().st_size for path in records(tmp_path))
    budget = {"prompt_cache": tmp_path, "prompt_cache_bytes": size // 2}
    assert ask("qwen3moe", texts[0], **budget)[1] > 0
    assert sum(path.stat().st_size for path in records(tmp_path)) <= size // 2
    assert ask("qwen3moe", texts[0], **budget)[1] > 0


def test_a_full_disk_is_one_note_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, _ = ask("qwen3moe", PROMPT, prompt_cache=tmp_path)
    before = {path: path.read_bytes() for path in records(tmp_path)}

    def fail(*values: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record, "append_record", fail)
    longer = [*PROMPT, *first, *PROMPT[:40]]
    expected, _, _ = ask("qwen3moe", longer)
    answer, cached, notes = ask("qwen3moe", longer, prompt_cache=tmp_path)
    assert answer == expected
    assert cached > 128
    assert notes == f"the prompt cache {tmp_path} is not written: No space left on device"
    assert {path: path.read_bytes() for path in records(tmp_path)} == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path: Path) -> None:
    ask("qwen3moe", PROMPT, prompt_cache=tmp_path)
    tmp_path.chmod(0o500)
    assert ask("qwen3moe", PROMPT, prompt_cache=tmp_path)[1] > 0
    tmp_path.chmod(0o700)


def test_a_read_only_folder_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("qwen3moe", PROMPT, prompt_cache=tmp_path)
    before = records(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    config = RunConfig(model=REFERENCES / "qwen3moe.gguf", context_size=256, prompt_cache=tmp_path)
    with load_engine(config) as engine:
        assert any("cannot be written" in note for note in engine.notes)
        generation = engine.session().generate([*PROMPT, 9], asked(6))
        list(generation)
        assert generation.timings.num_cached_tokens >= 128
    assert records(tmp_path) == before


PROGRAM = """
import sys
from pathlib import Path
from sharpi.settings import GenerationRequest, RunConfig, SamplingParams
from sharpi.engine.loader import load_engine
from sharpi.engine.prompt_cache import prompt_cache, record
model, folder, mode, number = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if mode == "dies":
    import os
    write = os.write
    written = [0]
    def write_some(descriptor, data):
        count = write(descriptor, data[:700])
        written[0] += count
        if written[0] > 9000 * number:
            os.kill(os.getpid(), 9)
        return count
    record.os.write = write_some
request = GenerationRequest(max_tokens=6, ignore_end=True, sampling=SamplingParams(temperature=0))
with load_engine(RunConfig(model=model, context_size=256, prompt_cache=folder)) as engine:
    for text in eval(sys.stdin.read()):
        generation = engine.session().generate(text, request)
        list(generation)
        print(generation.ids)
assert not engine.exit_notes, engine.exit_notes
"""


def start(folder: Path, mode: str, number: int, texts: list[list[int]]) -> subprocess.Popen[str]:
    model = str(REFERENCES / "qwen3moe.gguf")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, model, str(folder), mode, str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(repr(texts))
    process.stdin.close()
    return process


@pytest.mark.slow
def test_several_processes_use_one_folder_at_once(tmp_path: Path) -> None:
    texts = [[*PROMPT[:length], number] for number, length in enumerate((70, 100, 140, 170))]
    processes = [start(tmp_path, "runs", 0, texts[shift:] + texts[:shift]) for shift in range(2)]
    outputs = [process.stdout.read() for process in processes if process.stdout]
    assert [process.wait() for process in processes] == [0, 0]
    expected = [str(ask("qwen3moe", text)[0]) for text in texts]
    for shift, output in enumerate(outputs):
        assert output.splitlines() == expected[shift:] + expected[:shift]
    answer, cached, notes = ask("qwen3moe", texts[3], prompt_cache=tmp_path)
    assert (str(answer), cached >= 128, notes) == (expected[3], True, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 4])
def test_a_process_that_is_killed_within_a_write_leaves_a_sound_folder(
    number: int, tmp_path: Path
) -> None:
    process = start(tmp_path, "dies", number, [PROMPT])
    assert process.stdout is not None
    process.stdout.read()
    assert process.wait() == -signal.SIGKILL
    expected, _, _ = ask("qwen3moe", PROMPT)
    answer, _, notes = ask("qwen3moe", PROMPT, prompt_cache=tmp_path)
    assert (answer, notes) == (expected, "")
    assert ask("qwen3moe", PROMPT, prompt_cache=tmp_path)[1] >= 128
