"""Files of many quant types on a GPU: another one in each layer and role, or one for all."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from mixed_model import BLOCKS, mixer, rewrite

from sharpi.engine.engine import Engine
from sharpi.gguf.quant_types import QuantType

pytestmark = pytest.mark.native
IDS = np.random.default_rng(5).integers(3, 1000, 12).astype(np.int32)
MATRICES = ("attn_q.", "attn_k.", "attn_v.", "attn_output.", "_exps.", "output.weight")
Load = Callable[..., Engine]


def error(model: Path, load: Load, precision: str) -> float:
    """Returns the norm of the difference to the CPU's result, over the norm."""
    wanted = load(model, precision=precision, device="cpu").logits(IDS)
    found = load(model, precision=precision).logits(IDS)
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.fixture(scope="module", params=[0, len(BLOCKS) - 18], ids=["old types", "new types"])
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rewrite(tmp_path_factory.mktemp("mixed"), mixer(request.param)).mixed


@pytest.mark.parametrize("precision", ["f32", "int16"])
def test_each_role_and_layer_has_its_type(precision: str, mixed: Path, load: Load) -> None:
    """Only the last bit of an f16 key may differ."""
    assert error(mixed, load, precision) < 1e-3


@pytest.mark.parametrize("kind", [QuantType.NVFP4], ids=lambda kind: kind.name)
def test_one_type_for_every_matrix(kind: QuantType, load: Load, tmp_path: Path) -> None:
    """NVFP4 has factors of whole matrices and experts."""

    def choose(name: str) -> QuantType | None:
        return kind if any(part in name for part in MATRICES) and "norm" not in name else None

    assert error(rewrite(tmp_path, choose).mixed, load, "f32") < 1e-3
