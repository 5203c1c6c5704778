"""The records of a run's experts: statistics, a trace, a profile, however it ended."""

import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from reference_ops import ReferenceOps
from streamed_models import (
    DEMO,
    GREEDY,
    NUM_EXPERTS,
    NUM_LAYERS,
    NUM_USED,
    PROMPT,
    REFERENCES,
    asked,
    decode,
)

from sharpi.engine.engine import Engine
from sharpi.errors import StatsFileError
from sharpi.experts.profile import load_profile
from sharpi.experts.stats.stats_file import read_stats
from sharpi.experts.trace.trace import read_trace
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.transformer import Transformer
from sharpi.model.weights import load_weights

pytestmark = pytest.mark.native
Load = Callable[..., Engine]
NUM_DECODED = 23  # steps of the 24 tokens: the first one comes from the prompt


@pytest.fixture(params=[None, 4], ids=["mapped", "streamed"])
def recorded(request: pytest.FixtureRequest, load: Load, quick_demo: Path) -> Load:
    """Runs the demo model, without slots and with some, and keeps the requested records."""

    def load_one(**fields: object) -> Engine:
        return load(quick_demo, moe_slots=request.param, context_size=256, experts=asked(**fields))

    return load_one


@pytest.mark.parametrize("name", ["stats.json", "stats.txt"])
def test_stats_on_close(name: str, recorded: Load, tmp_path: Path) -> None:
    engine = recorded(stats=tmp_path / name)
    decode(engine)
    assert list(tmp_path.iterdir()) == []
    engine.close()
    stats = read_stats(tmp_path / name)
    assert stats.model == DEMO.name
    assert stats.num_tokens == NUM_DECODED
    assert [layer.layer for layer in stats.layers] == list(range(NUM_LAYERS))
    for layer in stats.layers:
        assert sum(layer.uses) >= layer.total.accesses > NUM_DECODED * NUM_USED
    assert engine.exit_notes == ()
    if name.endswith(".json"):
        plain = json.loads((tmp_path / name).read_text())
        assert plain["hit_rate"] == stats.total.hit_count.rate


class Interrupted(Exception):
    pass


def cut_short(engine: Engine, error: type[BaseException]) -> None:
    with engine:
        generation = engine.session().generate(PROMPT, GREEDY)
        while len(generation.ids) < 5:
            next(generation)
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, Interrupted, SystemExit])
def test_everything_is_written_when_a_run_is_cut_short(
    error: type[BaseException], recorded: Load, tmp_path: Path
) -> None:
    files = {name: tmp_path / name for name in ("stats", "trace", "profile")}
    with pytest.raises(error):
        cut_short(recorded(**files), error)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
    assert read_stats(files["stats"]).num_tokens == 4
    assert read_trace(files["trace"]).num_tokens == 4


def test_paths_that_cannot_be_written_are_warnings(recorded: Load, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    engine = recorded(stats=nowhere / "s.json", trace=nowhere / "t.npz", profile=nowhere / "p")
    ids = decode(engine)
    engine.close()
    assert len(ids) == 24
    assert len(engine.exit_notes) == 3
    for note in engine.exit_notes:
        assert str(nowhere) in note
        assert "\n" not in note


def test_nothing_decoded_is_no_trace_and_a_warning(recorded: Load, tmp_path: Path) -> None:
    engine = recorded(trace=tmp_path / "t.npz")
    engine.logits(np.array(PROMPT, np.int32))
    engine.close()
    assert engine.exit_notes == (
        f"no trace was written to {tmp_path / 't.npz'}: no token was decoded",
    )


def test_a_model_without_experts_says_so(load: Load, tmp_path: Path) -> None:
    names = ("stats", "trace", "profile")
    engine = load("qwen3", experts=asked(**{name: tmp_path / name for name in names}))
    decode(engine, [1, 2, 3], 4)
    assert engine.expert_stats() is None
    engine.close()
    assert len(engine.exit_notes) == 3
    assert all("no routed experts" in note for note in engine.exit_notes)


@cache
def reference_routes(ids: tuple[int, ...]) -> np.ndarray:
    """Returns a text's routes (tokens, layers, used) from the reference of a tiny model."""
    ops = ReferenceOps()
    ops.begin(ids, 0, range(len(ids)))
    with open_gguf(REFERENCES / "qwen3moe.gguf") as file:
        config = read_config(file)
        Transformer(config, load_weights(file, config), ops, trims_last_layer=False).step()
    return np.stack(ops.routes, axis=1)


@pytest.mark.parametrize("slots", [None, 3])
def test_a_trace_has_the_routes_of_the_reference(
    slots: int | None, load: Load, tmp_path: Path
) -> None:
    experts, prompt = asked(trace=tmp_path / "t.npz"), list(range(5, 17))
    with load("qwen3moe", moe_slots=slots, precision="f32", experts=experts) as engine:
        session = engine.session()
        first = decode(session, prompt, max_tokens=6)
        then = [*prompt, *first, 30, 31, 32]
        second = decode(session, then, 4)
    wanted = reference_routes((*then, *second))
    trace = read_trace(tmp_path / "t.npz")
    assert trace.num_experts == 8
    assert trace.prompts is not None
    assert trace.prompts.lengths.tolist() == [12, 4]
    assert trace.prompts.positions.tolist() == [0, 17]
    assert trace.lengths.tolist() == [5, 3]
    routes = trace.steps.routes
    assert len(routes) == len(wanted) - 1
    np.testing.assert_array_equal(routes, wanted[:-1])
    with np.load(tmp_path / "t.npz") as arrays:
        assert arrays["token_ids"].tolist() == [*first[:-1], *second[:-1]]
        probabilities = arrays["probabilities"].astype(np.float32)
        seconds = arrays["load_seconds"]
    assert probabilities.shape == (8, 2, 8)
    assert np.allclose(probabilities.sum(axis=2), 1, atol=2e-3)
    np.testing.assert_array_equal(np.argsort(-probabilities, axis=2)[:, :, :2], trace.routes)
    assert (seconds >= 0).all()


@pytest.mark.slow
def test_a_prompt_of_many_batches_is_all_there(recorded: Load, load: Load, tmp_path: Path) -> None:
    for batch_size, batches in ((512, [40]), (16, [16, 16, 8]), (13, [13, 13, 13, 1])):
        path = tmp_path / f"{batch_size}.npz"
        options = {"batch_size": batch_size, "context_size": 256, "moe_slots": 3}
        with load(DEMO, experts=asked(trace=path), **options) as engine:
            decode(engine, max_tokens=4)
        trace = read_trace(path)
        assert trace.prompts is not None
        # A last batch of one token is run like a decoded token.
        assert trace.prompts.batches.tolist() == [size for size in batches if size > 1]
        assert trace.num_tokens == 3 + batches.count(1)
        assert len(trace.steps.routes) == 43


@pytest.fixture
def strict_mask() -> Iterator[None]:
    old = os.umask(0o027)
    yield
    os.umask(old)


def test_modes_follow_the_umask(strict_mask: None, recorded: Load, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("stats", "trace", "profile")}
    with recorded(**files) as engine:
        decode(engine, max_tokens=3)
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o640}


def test_a_profile_of_another_model_is_refused(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with load("qwen3moe", experts=asked(profile=path)) as engine:
        decode(engine, [1, 2, 3], 3)
    with pytest.raises(StatsFileError, match=r"a profile of qwen3moe\.gguf"):
        load("olmoe", experts=asked(profile=path))


def test_a_profile_counts_every_use(recorded: Load, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    with recorded(profile=path) as engine:
        decode(engine)
    profile = load_profile(path, DEMO.name, NUM_LAYERS, NUM_EXPERTS)
    assert profile is not None
    per_layer = profile.uses.sum(axis=1)
    tokens = len(PROMPT) + NUM_DECODED
    assert per_layer[:-1].tolist() == [tokens * NUM_USED] * (NUM_LAYERS - 1)
    assert per_layer[-1] == (NUM_DECODED + 1) * NUM_USED  # a prompt only counts its last token
