"""The native library reports the machine's instruction sets."""

import pytest

from sharpi.errors import UsageError
from sharpi.ops.cpu.library import INSTRUCTION_SETS, instruction_set

pytestmark = pytest.mark.native


def test_an_instruction_set_by_name_or_the_best() -> None:
    assert instruction_set("portable") == "portable"
    assert instruction_set() in INSTRUCTION_SETS


def test_only_what_runs_here_is_offered() -> None:
    with pytest.raises(UsageError, match=r"no mmx kernels; choose one of .*portable$") as caught:
        instruction_set("mmx")
    offered = str(caught.value).split("choose one of ")[1].split(", ")
    assert [instruction_set(name) for name in offered] == offered
    for name in set(INSTRUCTION_SETS) - set(offered):
        with pytest.raises(UsageError):
            instruction_set(name)
