"""The numbers of the slot rules stand in kernels/slot_rules.h, and nowhere else."""

import re
from collections.abc import Iterator
from pathlib import Path

from sharpi.experts.policy_settings import PolicyKind
from sharpi.ops.slot_rules import slot_rules
from sharpi.resources import kernels_folder

KERNELS = kernels_folder()
PYTHON = (
    "sharpi/ops/cuda/expert_slots",
    "sharpi/ops/cuda/launchers/experts",
    "sharpi/experts",
)
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?=f?\b)")


def sources() -> Iterator[Path]:
    yield from (KERNELS / "cpu/experts/policy").iterdir()
    yield from (KERNELS / "cuda/slots").iterdir()
    for folder in PYTHON:
        for pattern in ("*slot*.py", "*policy*.py", "*learned*.py"):
            yield from (KERNELS.parent / folder).glob(pattern)
    yield from Path(__file__).parent.glob("reference/reference_*.py")


def test_the_policies_have_the_same_numbers_everywhere() -> None:
    rules = slot_rules()
    names = {kind.name.title().replace("_", ""): kind for kind in PolicyKind}
    assert {name: rules[name] for name in names} == names


def test_no_number_is_stated_twice() -> None:
    """Numbers such as 0.5 mean many things; others in a rule's source are rules."""
    rules = slot_rules()
    own = {value for value in rules.values() if 16 * value % 1}
    assert {1.1, 0.97, 0.003} <= own
    twice = [
        (path.name, what)
        for path in sources()
        if path.name != "slot_window.py"
        for what in (
            *(n for n in _NUMBER.findall(path.read_text()) if float(n) in own),
            *(n for n in re.findall(r"constexpr [^;]*?\bk(\w+) =", path.read_text()) if n in rules),
        )
    ]
    assert twice == []
