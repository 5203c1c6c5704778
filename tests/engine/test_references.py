"""Every architecture against `transformers`, in files from llama.cpp's converter."""

from collections.abc import Callable
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from agreement import errors_by_token
from gguf import GGMLQuantizationType
from reference_ops import ReferenceOps
from requantise import requantise

from sharpi.engine.engine import Engine
from sharpi.engine.sequence import Sequence
from sharpi.errors import UsageError
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.spec import supported_architectures
from sharpi.model.transformer import Transformer
from sharpi.model.weights import load_weights

pytestmark = pytest.mark.native
REFERENCES = Path(__file__).parents[1] / "references" / "data"
CASES = sorted(path.stem for path in REFERENCES.glob("*.npz"))
# Neighbours are of one family mostly, so each family is computed in every precision.
IN_TURN = list(zip(CASES, cycle(["f32", "int8", "int16"]), strict=False))
Load = Callable[..., Engine]
Requantised = Callable[[str, GGMLQuantizationType], Path]


@pytest.fixture(scope="module")
def requantised(tmp_path_factory: pytest.TempPathFactory) -> Requantised:
    """Returns a function that writes a case in another type, once for all tests."""
    folder = tmp_path_factory.mktemp("requantised")

    @cache
    def write(case: str, kind: GGMLQuantizationType) -> Path:
        return requantise(REFERENCES / f"{case}.gguf", folder / f"{case}-{kind.name}.gguf", kind)

    return write


@cache
def expected(case: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(REFERENCES / f"{case}.npz") as arrays:
        return arrays["tokens"].astype(np.int32), arrays["logits"]


def error(logits: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(logits - reference) / np.linalg.norm(reference))


def test_there_is_a_case_for_every_architecture() -> None:
    covered = set()
    for case in CASES:
        with open_gguf(REFERENCES / f"{case}.gguf") as file:
            covered.add(file.metadata.get_str("general.architecture"))
    assert covered == set(supported_architectures())


@pytest.mark.parametrize("case", CASES)
def test_float32_logits_and_those_of_numpy_are_those_of_transformers(case: str, load: Load) -> None:
    ids, logits = expected(case)
    engine = load(case, precision="f32")
    assert error(engine.logits(ids), logits) < 2e-3
    ops = ReferenceOps()
    ops.begin(ids.tolist(), 0, range(len(ids)))
    weights = load_weights(engine.file, engine.model_config)
    assert error(Transformer(engine.model_config, weights, ops).step(), logits) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("case", "precision"), IN_TURN)
def test_8_bit_activations_on_q8_0_stay_close(
    case: str, precision: str, load: Load, requantised: Requantised
) -> None:
    ids, logits = expected(case)
    q8_0 = requantised(case, GGMLQuantizationType.Q8_0)
    int8 = np.sort(errors_by_token(load(q8_0, precision="int8").logits(ids), logits))
    # Two experts of nearly the same score may change places at one token, which then differs by
    # a fifth; the others must be close one by one.
    assert np.median(int8) < 3e-2
    assert int8[-2] < 5e-2
    if precision == "int16":
        # What is left is the rounding of the weights: twice-rounded activations are as good as
        # float32.
        exact = error(load(q8_0, precision="f32").logits(ids), logits)
        assert error(load(q8_0, precision="int16").logits(ids), logits) < exact + 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("case", "precision"), IN_TURN)
def test_keys_and_values_of_8_bits_stay_close(case: str, precision: str, load: Load) -> None:
    ids, logits = expected(case)
    with open_gguf(REFERENCES / f"{case}.gguf") as file:
        shapes = read_config(file).attention
    if any(dim % 32 for s in shapes for dim in (s.key_dim, s.value_dim)):
        with pytest.raises(UsageError, match="omit --kv-type"):
            load(case, kv_type="q8_0")
        return
    engine = load(case, precision=precision, kv_type="q8_0")
    whole = engine.logits(ids)
    assert error(whole, logits) < 1.5e-2
    assert np.array_equal(step_by_step(engine, ids), whole)


def step_by_step(engine: Engine, ids: np.ndarray) -> np.ndarray:
    sequence = Sequence(engine.runner)
    return np.stack([sequence.extend([i]).copy() for i in ids.tolist()])


@pytest.mark.slow
@pytest.mark.parametrize(("case", "precision"), IN_TURN)
def test_decode_gives_the_bits_of_prefill(
    case: str, precision: str, load: Load, requantised: Requantised
) -> None:
    ids, _ = expected(case)
    q4_0 = requantised(case, GGMLQuantizationType.Q4_0)
    engine = load(q4_0, precision=precision)
    whole = engine.logits(ids)
    assert np.array_equal(step_by_step(engine, ids), whole)
    assert np.array_equal(load(q4_0, precision=precision, num_threads=3).logits(ids), whole)
