"""Traces: recorded routes are read back, and other files are refused with a one-line message."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from route_traces import skewed_routes

from sharpi.errors import TraceFileError
from sharpi.experts.native.native_policy import NativePolicy
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.experts.simulation.simulate import replay_optimum
from sharpi.experts.trace.trace import Prompts, Steps, read_trace, run_steps
from sharpi.experts.trace.trace_writer import TraceWriter

ROUTES = skewed_routes(7, 3, 10, 2)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    with TraceWriter(path, 10, expert_bytes=(100, 200, 300)) as writer:
        writer.begin([ROUTES[:1], ROUTES[:2]], position=9)
        for token in ROUTES[2:5]:
            writer.append(token, token_id=4, probabilities=np.full((3, 10), 0.1))
        writer.begin()
        for token in ROUTES[5:]:
            writer.append(token, token_id=5, load_seconds=0.25)
    trace = read_trace(path)
    np.testing.assert_array_equal(trace.routes, ROUTES[2:])
    assert trace.lengths.tolist() == [3, 2]
    assert trace.num_experts == 10
    assert trace.expert_bytes is not None
    assert trace.expert_bytes.tolist() == [100, 200, 300]
    assert trace.prompts is not None
    np.testing.assert_array_equal(trace.prompts.routes, ROUTES[[0, 0, 1]])
    assert trace.prompts.lengths.tolist() == [3, 0]
    assert trace.prompts.batches.tolist() == [1, 2]
    assert trace.prompts.positions.tolist() == [9, 0]
    assert trace.steps.sizes.tolist() == [1, 2, 1, 1, 1, 1, 1]
    assert trace.steps.starts.tolist() == [False] * 5 + [True, False]
    with np.load(path) as arrays:
        assert arrays["token_ids"].tolist() == [4, 4, 4, 5, 5]
        assert "probabilities" not in arrays  # not known for every token
    assert [each.name for each in tmp_path.iterdir()] == ["trace.npz"]


def test_nothing_recorded_writes_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "trace.npz"
    path.write_text("older")
    TraceWriter(path, 10).close()
    assert path.read_text() == "older"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "nowhere" / "trace.npz", 10)
    writer.append(ROUTES[0])
    with pytest.raises(TraceFileError, match="cannot be written: No such file"):
        writer.close()


def test_the_first_tokens(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", experts=ROUTES, lengths=[3, 0, 4])
    start = read_trace(tmp_path / "t.npz").first(5)
    assert (start.num_tokens, start.lengths.tolist()) == (5, [3, 0, 2])
    assert start.steps.starts.tolist() == [True, False, False, True, False]


PROMPTS = {
    "experts": ROUTES,
    "lengths": [3, 0, 4],
    "prompt_experts": ROUTES[:6],
    "prompt_lengths": [3, 2, 1],
    "prompt_batches": [2, 1, 2, 1],
    "prompt_positions": [0, 0, 8],
}


def test_prompts_come_before_what_was_decoded(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **PROMPTS)  # type: ignore[arg-type]
    steps = read_trace(tmp_path / "t.npz").steps
    order = [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    np.testing.assert_array_equal(steps.routes, ROUTES[order])
    assert steps.sizes.tolist() == [2, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert np.flatnonzero(steps.starts).tolist() == [0, 5]


@pytest.mark.parametrize("tokens", range(1, 9))
def test_the_first_tokens_and_their_prompts(tokens: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **PROMPTS)  # type: ignore[arg-type]
    whole = read_trace(tmp_path / "t.npz")
    start = whole.first(tokens).steps
    size = len(start.sizes)
    assert start.sizes.tolist() == whole.steps.sizes[:size].tolist()
    assert start.starts.tolist() == whole.steps.starts[:size].tolist()
    assert len(start.routes) == min(tokens, 7) + (3 if tokens <= 3 else 6)
    np.testing.assert_array_equal(start.routes, whole.steps.routes[: len(start.routes)])


Arrays = dict[str, object]


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"routes": ROUTES}, "no array 'experts'"),
        ({"experts": ROUTES[0]}, r"'experts' is int32 of \(3, 2\)"),
        ({"experts": ROUTES[:0]}, r"\(0, 3, 2\)"),
        ({"experts": ROUTES.astype(float)}, "float64"),
        ({"experts": ROUTES - ROUTES.min() - 1}, "expert ids from -1"),
        ({"experts": ROUTES, "num_experts": 5}, "in a trace of 5 experts"),
        ({"experts": ROUTES, "num_experts": [1, 2]}, "not one whole number"),
        ({"experts": ROUTES * 0}, "token 0 uses an expert of a layer twice"),
        ({"experts": ROUTES, "lengths": [3, 3]}, "do not add up to the 7 tokens"),
        ({"experts": ROUTES, "lengths": [8, -1]}, "do not add up"),
        ({"experts": ROUTES, "expert_bytes": [1, 2]}, "one number or one a layer"),
        ({"experts": np.array([None])}, "not an .npz file of routes"),
        (PROMPTS | {"prompt_batches": [2, 2, 1, 1]}, "prompt_positions contradict each other"),
        (PROMPTS | {"prompt_batches": [2, 1, 2]}, "contradict"),
        (PROMPTS | {"prompt_lengths": [3, 3]}, "contradict"),
        (PROMPTS | {"prompt_experts": ROUTES[:6] + 10}, "contradict"),
        (PROMPTS | {"prompt_experts": ROUTES[:6] * 0}, "token 0 uses an expert of a layer twice"),
    ],
)
def test_contradictions(tmp_path: Path, arrays: Arrays, complaint: str) -> None:
    path = tmp_path / "trace.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(TraceFileError, match=complaint) as error:
        read_trace(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def write_text(path: Path) -> None:
    path.write_text("no trace")


def write_single_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, ROUTES)


def write_half(path: Path) -> None:
    np.savez(path, experts=ROUTES)
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize("write", [write_text, write_single_array, write_half, Path.touch])
def test_files_of_another_kind(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "trace.npz")
    with pytest.raises(TraceFileError, match=r"not an .npz file"):
        read_trace(tmp_path / "trace.npz")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError, match="No such file"):
        read_trace(tmp_path / "none.npz")


pytestmark = pytest.mark.native
LAYERS, EXPERTS, K, SLOTS = 4, 12, 2, 4


def a_run() -> Steps:
    """Returns two texts after prompts of one and of two batches, the second one continuing."""
    routes = skewed_routes(150, LAYERS, EXPERTS, K)
    counts = (np.array(each, np.int64) for each in ([20, 30], [20, 25, 5], [0, 60]))
    prompts = Prompts(routes[:50], *counts)
    return run_steps(routes[50:], np.array([60, 40]), prompts)


def settings(kind: PolicyKind) -> PolicySettings:
    return PolicySettings(kind, EXPERTS, K, (SLOTS,) * LAYERS, load_budget=2)


@pytest.mark.parametrize("kind", PolicyKind)
def test_a_whole_replay_is_its_steps_one_by_one(kind: PolicyKind) -> None:
    steps, whole, single = a_run(), NativePolicy(settings(kind)), NativePolicy(settings(kind))
    whole.replay(steps)
    single.start()
    end = np.cumsum(steps.sizes)
    for last, size, starts in zip(end, steps.sizes, steps.starts, strict=True):
        if starts:
            single.reset_sequence()
        for layer in range(LAYERS):
            batch = steps.routes[last - size : last, layer]
            if size == 1:
                single.use(layer, batch[0])
            else:
                single.use_batch(layer, batch)
        single.end_token()
    assert whole.all_counts() == single.all_counts()
    np.testing.assert_array_equal(whole.states().resident, single.states().resident)


def test_no_policy_that_waits_for_misses_beats_the_optimum() -> None:
    steps = a_run()
    best = replay_optimum(steps, EXPERTS, (SLOTS,) * LAYERS)
    for kind in (PolicyKind.SLRU, PolicyKind.LRU, PolicyKind.LFRU, PolicyKind.LEARNED_KEEP):
        policy = NativePolicy(settings(kind))
        policy.replay(steps)
        for mine, optimum in zip(policy.all_counts(), best, strict=True):
            assert mine.accesses == optimum.accesses
            assert mine.hits <= optimum.hits


def test_a_batch_uses_each_expert_once() -> None:
    routes = np.array([[[0, 1]], [[1, 0]], [[2, 1]], [[0, 3]]], np.int32)
    steps = Steps(routes, np.array([3, 1]), np.array([True, False]))
    (counts,) = replay_optimum(steps, 4, (1,))
    assert (counts.accesses, counts.hits) == (5, 1)
