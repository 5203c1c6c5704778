"""Settings of sharpi by name: the right config, the right type, and no unknown name."""

import pytest
from contest.sharpi_options import sharpi_options

from sharpi.errors import UsageError


def test_values_have_their_types() -> None:
    assert sharpi_options(["ram=2GB", "moe_slots=8", "policy=slru", "prefetch=false"]) == {
        "ram": 2_000_000_000,
        "moe_slots": 8,
        "experts": {"policy": "slru", "prefetch": False},
    }


@pytest.mark.parametrize("text", ["polic=slru", "model=x", "num_threads=1", "experts=1", "=", ""])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no such setting"):
        sharpi_options([text])
