"""Files with two sets of frequency divisors: the requested context decides between them."""

from pathlib import Path

import numpy as np
import pytest

from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.model.weights import load_weights

PHIMOE = Path(__file__).parents[2] / "references" / "data" / "phimoe.gguf"


@pytest.mark.parametrize(("context", "last"), [(64, 3.2), (4096, 3.2), (4097, 16.0)])
def test_divisors_follow_the_context(context: int, last: float) -> None:
    with open_gguf(PHIMOE) as file:
        weights = load_weights(file, read_config(file).for_context(context))
        assert weights.rope_divisors is not None
        assert np.isclose(weights.rope_divisors[-1], last)
        assert weights.unused == ()
