"""Keys and values that heads keep of a prompt, against SnapKV's rule in NumPy."""

import numpy as np
import pytest
from attention_models import SHAPES, RoundedReference, attention_model, error, random_ids
from reference_attention import kept_slots
from replay import AVAILABLE, Native, reference

from sharpi.ops.cpu.kv_cache import KEEP_WINDOW, KV_FORMATS
from sharpi.ops.cpu.program import ProgramLimits, Rounding
from sharpi.settings import KvTypes

pytestmark = pytest.mark.native
PROMPT, KEPT, MORE = 333, 100, 9
IDS = random_ids(PROMPT + MORE)
STEPS = [IDS[: PROMPT - KEEP_WINDOW], IDS[PROMPT - KEEP_WINDOW : PROMPT]]
BLOCKS, GROUPED = "blocks of 32", "grouped"


def cut_in_numpy(name: str, types: KvTypes) -> np.ndarray:
    """Returns the outputs of the tokens after a prompt of which KEPT positions are kept."""
    ops, model = RoundedReference(types), attention_model(SHAPES[name])
    reference(model, STEPS, ops)
    ops.keep(KEPT)
    outs = []
    for i in range(PROMPT, len(IDS)):
        ops.begin(IDS[i : i + 1], i, [0])
        outs.append(model(ops))
    return np.concatenate(outs)


def cut_native(name: str, types: KvTypes, precision: Rounding, isa: str | None) -> np.ndarray:
    limits = ProgramLimits(640, 640, 2048, precision, isa, drops_keys=True)
    shape = SHAPES[name]
    native = Native(attention_model(shape), [shape], kv_types=types, limits=limits)
    native.run(STEPS[:1])
    native.run(STEPS[1:], position=PROMPT - KEEP_WINDOW, num_kept=KEPT)
    assert native.num_dropped == PROMPT - KEPT
    rest = [IDS[i : i + 1] for i in range(PROMPT, len(IDS))]
    native.cache.layers[0][native.pages[2:]] = 255  # NaN: what was dropped is not read
    return native.run(rest, position=PROMPT)


@pytest.mark.slow
@pytest.mark.parametrize("name", [GROUPED, "odd head sizes", "soft cap", "wide group"])
@pytest.mark.parametrize("isa", AVAILABLE)
def test_tokens_after_a_cut_see_what_the_reference_keeps(name: str, isa: str) -> None:
    out = cut_native(name, KvTypes(), "f32", isa)
    assert error(out, cut_in_numpy(name, KvTypes())) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KV_FORMATS)
@pytest.mark.parametrize("precision", ["f32", "int8"])
def test_every_type_is_copied_as_it_is(kind: str, precision: Rounding) -> None:
    types = KvTypes(kind, kind)  # type: ignore[arg-type]
    out = cut_native(BLOCKS, types, precision, None)
    # Keys whose weights are nearly the same may change places: one of a hundred is a hundredth.
    assert error(out, cut_in_numpy(BLOCKS, types)) < (1e-2 if precision == "f32" else 6e-2)


def test_the_window_and_the_neighbours_of_a_needle_are_kept() -> None:
    rng = np.random.default_rng(5)
    keys = rng.standard_normal((400, 2, 16)).astype(np.float32) * 0.1
    queries = rng.standard_normal((KEEP_WINDOW, 4, 16)).astype(np.float32) * 0.1
    queries[:, :2, 0] = keys[77, 0, 0] = 9  # the first KV head's
    queries[:, 2:, 1] = keys[200, 1, 1] = 9
    slots = kept_slots(queries, keys, 64, 1.0)
    assert slots.shape == (2, 64)
    assert (slots[:, -KEEP_WINDOW:] == np.arange(400 - KEEP_WINDOW, 400)).all()
    assert set(range(74, 81)) <= set(slots[0].tolist())
    assert set(range(197, 204)) <= set(slots[1].tolist())
    assert not set(range(197, 204)) <= set(slots[0].tolist())
