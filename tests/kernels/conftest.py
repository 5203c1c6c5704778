import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from kernel_library import ISAS, has_isa


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    """The name of each instruction set this machine has."""
    name: str = request.param
    if not has_isa(name):
        pytest.skip(f"this machine has no {name}")
    return name
