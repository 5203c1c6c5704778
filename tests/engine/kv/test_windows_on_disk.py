"""A prompt cache of layers with windows: the same bits, little memory, and small files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scheduled import alone, asked, assert_nothing_is_left, finish, submit

from sharpi.engine.engine import Engine
from sharpi.engine.kv.window_pages import WindowPages
from sharpi.engine.prompt_cache.record import RecordFault, parse_name
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.settings import SpeculationConfig

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
REFERENCES = Path(__file__).parents[2] / "references" / "data"
Answer = tuple[str, list[int]]
OPTIONS = {"context_size": 4096, "batch_size": 64, "num_parallel": 2}


def ids(count: int, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(3, 280, count).tolist()


def ask(engine: Engine, prompt: list[int]) -> tuple[Answer, int]:
    """Returns a new session's answer, and how many tokens of the prompt were found."""
    generation = engine.session().generate(prompt, asked(8))
    text = "".join(generation)
    return (text, generation.ids), generation.timings.num_cached_tokens


def saved(load: Load, family: str, prompt: list[int], folder: Path) -> list[int]:
    """Answers with a prompt cache in the folder; returns prompt and answer once it is written."""
    engine = load(family, **OPTIONS, prompt_cache=folder)
    (_, answer), _ = ask(engine, prompt)
    assert len(engine.runner.windows._present) <= engine.runner.settings.window_pages
    engine.close()
    assert engine.exit_notes == ()
    return [*prompt, *answer]


def kinds(folder: Path) -> dict[bool, int]:
    """Counts the whole and the partial records in a folder."""
    names = [parse_name(path.name) for path in folder.rglob("*.kv")]
    partial = [name.is_partial for name in names if name]
    return {kind: partial.count(kind) for kind in (False, True)}


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt-oss", "gemma3", "gemma4-e2b", "llama4", "afmoe"])
def test_the_next_turn_reads_the_last_window_alone(family: str, load: Load, tmp_path: Path) -> None:
    before = saved(load, family, ids(1500), tmp_path)
    assert kinds(tmp_path)[True] >= 15  # of 24 pages
    longer = [*before, *ids(20, 2)]
    engine = load(family, **OPTIONS, prompt_cache=tmp_path)
    assert 0 < engine.runner.settings.window_pages < engine.runner.pages.size
    answer, found = ask(engine, longer)
    assert found >= len(before) - 1
    assert answer == alone(load(family, **OPTIONS), longer, asked(8))
    assert len(engine.runner.windows._present) <= engine.runner.settings.window_pages


def test_an_assistant_drafts_where_windows_are_dropped(load: Load, tmp_path: Path) -> None:
    assistant = REFERENCES.parent / "heads" / "gemma4-e2b-assistant.gguf"
    drafting = SpeculationConfig(kinds=("mtp",), max_drafts=3, draft_model=assistant)
    text, options = ids(80) * 12, OPTIONS | {"speculation": drafting, "prompt_cache": tmp_path}
    (_, answer), _ = before = ask(load("gemma4-e2b", **OPTIONS), text)
    engine = load("gemma4-e2b", **options)
    assert ask(engine, text) == before
    assert 0 < len(engine.runner.windows._present) <= engine.runner.settings.window_pages
    engine.close()
    assert kinds(tmp_path)[True] > 5
    longer = [*text, *answer, 7]
    again = load("gemma4-e2b", **options)
    assert ask(again, longer) == (alone(load("gemma4-e2b", **OPTIONS), longer, asked(8)), 960)
    assert again.speculator.statistics.kinds["mtp"].num_checked > 0


def test_a_text_that_branches_goes_on_at_a_snapshot(load: Load, tmp_path: Path) -> None:
    saved(load, "gpt-oss", ids(2500), tmp_path)
    branch = [*ids(2500)[:1900], *ids(30, 3)]
    engine = load("gpt-oss", **OPTIONS, prompt_cache=tmp_path)
    answer, found = ask(engine, branch)
    assert found == 1024
    assert answer == alone(load("gpt-oss", **OPTIONS), branch, asked(8))


def test_memory_gets_back_from_disk_what_its_windows_dropped(load: Load, tmp_path: Path) -> None:
    saved(load, "gpt-oss", [3], tmp_path)  # from now on the model's digest is known
    engine = load("gpt-oss", **OPTIONS, prompt_cache=tmp_path)
    scheduler = Scheduler(engine, 2)
    submit(scheduler, ids(2900), asked())
    finish(scheduler)
    branches = [[*ids(2900)[:end], 9] for end in (1100, 2200)]
    heard = [submit(scheduler, each, asked()) for each in branches]
    finish(scheduler)
    found = [each.finish_info.timings.num_cached_tokens for each in heard]
    assert found == [1024, 2048]
    whole = load("gpt-oss", **OPTIONS)
    assert [(each.text, each.ids) for each in heard] == [
        alone(whole, each, asked()) for each in branches
    ]
    assert len(engine.runner.windows._present) <= engine.runner.settings.window_pages
    assert_nothing_is_left(scheduler, engine)


def test_a_lost_record_costs_what_needs_it_alone(load: Load, tmp_path: Path) -> None:
    before = saved(load, "gemma3", ids(1500), tmp_path)
    longer = [*before, 5, 6]
    whole = [path for path in tmp_path.rglob("*.kv") if not path.stem.endswith("p")]
    for path in whole:
        if parse_name(path.name).num_tokens < 64:  # type: ignore[union-attr]
            path.write_bytes(path.read_bytes()[:-1])
    engine = load("gemma3", **OPTIONS, prompt_cache=tmp_path)
    answer, found = ask(engine, longer)
    assert found == len(before) // 64 * 64
    assert answer == alone(load("gemma3", **OPTIONS), longer, asked(8))
    engine.close()
    assert "cut short" in "".join(engine.exit_notes)


def test_a_smaller_context_keeps_all_and_reads_whole_records_alone(
    load: Load, tmp_path: Path
) -> None:
    before = saved(load, "gemma3", ids(900), tmp_path)
    small = OPTIONS | {"context_size": 256}
    engine = load("gemma3", **small, prompt_cache=tmp_path)
    assert engine.runner.settings.window_pages == engine.runner.memory.partial_bytes == 0
    answer, found = ask(engine, before[:200])
    assert found == 0
    assert answer == alone(load("gemma3", **small), before[:200], asked(8))
    engine.close()
    assert kinds(tmp_path)[True] == 4  # the first three pages have become whole
    assert ask(load("gemma3", **OPTIONS, prompt_cache=tmp_path), before)[1] == len(before) - 1


def test_a_slot_of_a_window_is_refused_where_all_is_kept(load: Load, tmp_path: Path) -> None:
    path, options = tmp_path / "slot", OPTIONS | {"context_size": 1024}
    scheduler = Scheduler(load("gpt-oss", **options), 1)
    submit(scheduler, ids(800), asked())
    finish(scheduler)
    scheduler.slots.save(0, path, b"k" * 16)
    other = Scheduler(load("gpt-oss", **OPTIONS | {"context_size": 256}), 1)
    with pytest.raises(RecordFault, match="load the model with the -c"):
        other.slots.restore(0, path, b"k" * 16)


def test_a_restored_slot_leaves_windows_alone_that_others_use(load: Load, tmp_path: Path) -> None:
    path, whole = tmp_path / "slot", load("gpt-oss", **OPTIONS)
    scheduler = Scheduler(load("gpt-oss", **OPTIONS), 2)
    submit(scheduler, ids(800), asked())
    finish(scheduler)
    scheduler.slots.save(0, path, b"k" * 16)
    again = Scheduler(load("gpt-oss", **OPTIONS), 2)
    heard = submit(again, ids(800)[:150], asked(40))
    while not heard.text:
        again.step()
    again.slots.restore(1, path, b"k" * 16)
    finish(again)
    assert (heard.text, heard.ids) == alone(whole, ids(800)[:150], asked(40))


def test_snapshots_take_a_quarter_of_the_pages_at_most() -> None:
    narrow, wide = (WindowPages(window, 1, lambda *_: None) for window in (128, 1024))
    assert [n for n in range(40) if narrow.is_snapshot(n)] == [14, 15, 30, 31]
    assert narrow.usable_of([n in (14, 15) for n in range(16)], 1024) == 1024
    assert [n for n in range(128) if wide.is_snapshot(n)] == [*range(48, 64), *range(112, 128)]
    assert wide.usable_of([wide.is_snapshot(n) for n in range(64)], 4096) == 4096
