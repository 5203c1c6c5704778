"""Recorded steps on emulated ARM processors: every operation, then whole small models."""

from collections.abc import Callable
from contextlib import closing
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from attention_models import SHAPES, attention_model, error, expected, in_blocks, random_ids
from emulator import PROCESSORS, EmulatedLibrary
from gguf import GGMLQuantizationType
from msgspec.structs import replace
from replay import Native, reference
from requantise import requantise
from test_recorded_ops import IDS, ONE_OP, moe

import sharpi.ops.cpu.library
import sharpi.ops.cpu.program
from sharpi.engine.loader import load_engine
from sharpi.ops.cpu import kv_cache, recorder_experts, recorder_tape
from sharpi.ops.interface import StackedMatrix
from sharpi.settings import KvTypes, RunConfig

REFERENCES = Path(__file__).parents[1] / "references" / "data"
NUM_TOKENS = 20  # of a case's 32: past two windows, and past what rotations are stretched for
# One model for each kind of layer and of rotation, some of more than one.
CASES = (
    "chatglm", "command-r", "deepseek2-lite", "deepseek3", "gemma4-e2b", "falcon-h1",
    "gemma3", "deepseek32-chosen", "gemma4-moe", "gpt-oss", "granitehybrid", "kimi-linear",
    "laguna-values", "lfm2moe", "llama-biases", "llama-llama3", "llama4", "mimo2", "minicpm",
    "minimax-m3-chosen", "nemotron_h_moe", "olmo2", "phi2", "phi3", "qwen2moe", "qwen2-yarn",
    "qwen35moe", "qwen3moe", "qwen3next", "smollm3", "stablelm", "starcoder2", "step35",
)  # fmt: skip


@pytest.fixture(autouse=True)
def recorded_for_arm(arm: EmulatedLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends programs to the emulated library, and their data to the memory that it sees."""
    arm.memory.clear()
    addresses_of = recorder_experts._addresses

    # By where an array is: layers may share their outputs, and read each other's keys.
    placed: dict[tuple[int, int], tuple[npt.NDArray[np.generic], int]] = {}

    def data(_: recorder_tape.Tape, array: npt.NDArray[np.generic] | None) -> int | None:
        if array is None:
            return None
        where = array.ctypes.data, array.nbytes
        if where not in placed:
            placed[where] = array, int(arm.memory.place(array).ctypes.data)
        return placed[where][1]

    def addresses(stacked: StackedMatrix) -> npt.NDArray[np.uint64]:
        return addresses_of(replace(stacked, data=arm.memory.place(stacked.data)))

    monkeypatch.setattr(recorder_tape.Tape, "_data", data)
    monkeypatch.setattr(recorder_experts, "_addresses", addresses)
    for user_of_memory in (recorder_tape, kv_cache):
        monkeypatch.setattr(user_of_memory, "aligned_bytes", arm.memory.take)
    for module in (sharpi.ops.cpu.library, sharpi.ops.cpu.program, sharpi.ops.cpu.library):
        monkeypatch.setattr(module, "load_library", lambda: arm)


@pytest.mark.parametrize("name", ONE_OP)
def test_operation_matches_the_reference(name: str) -> None:
    native = Native(ONE_OP[name], instruction_set="neon")
    assert error(native.run([IDS]), reference(ONE_OP[name], [IDS])) < 1e-5


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("length", [1, 140])
def test_attention_matches_the_reference(name: str, length: int) -> None:
    model, ids = attention_model(SHAPES[name]), random_ids(length)
    native = Native(model, [SHAPES[name]], instruction_set="neon")
    # f16 keys and values: 2^-11 each, a little more after the softmax.
    assert error(native.run([ids]), reference(model, [ids])) < 2e-3


@pytest.mark.parametrize("name", [name for name in SHAPES if in_blocks(name)])
@pytest.mark.parametrize("length", [1, 65])
def test_attention_over_q8_0_matches_the_reference(name: str, length: int) -> None:
    shape, ids = SHAPES[name], random_ids(length)
    types = KvTypes("q8_0", "q8_0")
    native = Native(attention_model(shape), [shape], kv_types=types, instruction_set="neon")
    assert error(native.run([ids]), expected(name, ids, types)) < 1e-3


def test_prefill_decode_and_threads_give_the_same_bits() -> None:
    shape, ids = SHAPES["grouped"], random_ids(100)
    model = attention_model(shape)
    whole = Native(model, [shape], instruction_set="neon").run([ids])
    steps = [ids[:1], ids[1:4], ids[4:90], *[[i] for i in ids[90:]]]
    alone = Native(model, [shape], threads=1, instruction_set="neon")
    np.testing.assert_array_equal(alone.run(steps, threads=1), whole)


def test_experts_give_the_same_bits_in_any_batch() -> None:
    ids, native = random_ids(33), Native(moe(), instruction_set="neon")
    np.testing.assert_array_equal(native.run([[i] for i in ids]), native.run([ids]))


@pytest.fixture(scope="module")
def in_q8_0(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a case's model with its matrices in Q8_0; it is written once for both processors."""
    folder = tmp_path_factory.mktemp("q8_0")

    @cache
    def written(case: str) -> Path:
        target = folder / f"{case}.gguf"
        return requantise(REFERENCES / f"{case}.gguf", target, GGMLQuantizationType.Q8_0)

    return written


@pytest.mark.parametrize(
    ("case", "arm", "precision"),
    list(zip(CASES, cycle(PROCESSORS), cycle(["int8", "int8", "int16", "int16"]), strict=False)),
    indirect=["arm"],
)
def test_logits_are_those_of_transformers(
    case: str, precision: str, in_q8_0: Callable[[str], Path]
) -> None:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        ids, expected = arrays["tokens"].astype(np.int32)[:NUM_TOKENS], arrays["logits"]
    for model, used, most in (
        (REFERENCES / f"{case}.gguf", "f32", 2e-3),
        (in_q8_0(case), precision, 3e-2),
    ):
        config = RunConfig(model=model, precision=used, instruction_set="neon")
        with closing(load_engine(config)) as engine:
            assert error(engine.logits(ids), expected[:NUM_TOKENS]) < most, used
