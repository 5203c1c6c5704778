"""Bugs planted in the kernels that ship: each is found, and the unchanged kernels pass."""

from collections.abc import Callable
from dataclasses import dataclass

import kernel_cases as cases
import numpy as np
import pytest
from cpu_device import BACKWARD, FORWARD, CpuDevice
from cpu_kernel import LaunchError
from msgspec.structs import replace

from sharpi.device.gpu_kernels import kernel_source
from sharpi.device.launch import Launch

Case = Callable[[CpuDevice], cases.Result]
CASES = [
    cases.rms_norm,
    cases.quantise,
    cases.matvec,
    cases.heads,
    cases.route,
    cases.group_routes,
    cases.experts_gather_gate_up,
    *(cases.slot_route, cases.join_heads, cases.experts_product),
    cases.experts_f16_product,
]
RACE = "race at offset|read before it is written"


@dataclass(frozen=True)
class Bug:
    """A planted bug: `text` of the case's kernel, and its replacement."""

    what: str
    case: Case
    text: str
    instead: str
    says: str

    def __str__(self) -> str:
        return f"{self.case.__name__}: {self.what}"


BUGS = [
    Bug(
        "no barrier before the warps' sums are read",
        cases.rms_norm,
        "__syncthreads();\n  const int lane",
        "const int lane",
        RACE,
    ),
    Bug(
        "barriers in two branches",
        cases.rms_norm,
        "__syncthreads();\n  const int lane",
        "if (threadIdx.x < 32) __syncthreads();\n  else __syncthreads();\n  const int lane",
        "wait at different barriers",
    ),
    Bug(
        "half a warp leaves",
        cases.quantise,
        "if (block >= columns / 32) return;",
        "if (block >= columns / 32 || threadIdx.x % 32 >= 16) return;",
        "ended or never were|never come",
    ),
    Bug(
        "warps without columns stay",
        cases.quantise,
        "if (block >= columns / 32) return;",
        "",
        "behind the end|race",
    ),
    Bug(
        "writes what it reads",
        cases.quantise,
        "quantise_32(value,",
        "((float*)x)[0] = value;\n  quantise_32(value,",
        "of what is only read",
    ),
    Bug(
        "rows of one block of threads too many",
        cases.matvec,
        "t < count && first + r < part.rows",
        "t < count",
        "behind the end|race",
    ),
    Bug(
        "weights behind the last row",
        cases.matvec,
        "min(first + r, part.rows - 1)",
        "(first + r)",
        "in argument 1",
    ),
    Bug(
        "a word from where words do not begin",
        cases.matvec,
        "uint32_t next = load_word(p - past);\n  const uint32_t last",
        "uint32_t next = load_word(p);\n  const uint32_t last",
        "misaligned access",
    ),
    Bug(
        "the last word is read whole",
        cases.matvec,
        "__ldg((const uint16_t*)(p + 4 * kWords - 2))",
        "load_word(p - past + 4 * kWords)",
        "too far, in argument 1|behind the end, in argument 1",
    ),
    Bug(
        "no fence before lanes read each other's values",
        cases.heads,
        "row[i] = source[i];\n  __syncwarp();",
        "row[i] = source[i];",
        RACE,
    ),
    Bug(
        "no fence before groups are compared",
        cases.route,
        "group_strength(choice + g * size, size, counts_two);\n  __syncwarp();",
        "group_strength(choice + g * size, size, counts_two);",
        RACE,
    ),
    Bug(
        "no barrier after the counts",
        cases.group_routes,
        "__syncthreads();\n  int first = 0",
        "int first = 0",
        RACE,
    ),
    Bug(
        "blocks write one offset",
        cases.group_routes,
        "offsets[expert] = first",
        "offsets[0] = first",
        "of another block before",
    ),
    Bug(
        "experts are read before they are copied",
        cases.experts_gather_gate_up,
        "if (is_copied(gather, count, expert)) copies.wait();\n  else if (count)",
        "if (count)",
        "a write of another block before",
    ),
    Bug(
        "no fence after the copies",
        cases.experts_gather_gate_up,
        "    __threadfence();\n    __syncthreads();\n    if (threadIdx.x) return;",
        "    __syncthreads();\n    if (threadIdx.x) return;",
        "a write of another block before",
    ),
    Bug(
        "threads go on before the copies have ended",
        cases.experts_gather_gate_up,
        "    __syncthreads();\n#ifdef CUDA_ON_CPU\n    emulator_join(counter);\n#endif",
        "",
        "a write of another block before",
    ),
    Bug(
        "the block with the last rows chooses experts",
        cases.slot_route,
        "if (is_last_block(done, int(gridDim.x)))",
        "if (blockIdx.x + 1 == gridDim.x)",
        "a write of another block before",
    ),
    Bug(
        "no fence after the logits",
        cases.slot_route,
        "__shared__ int is_last;\n  __threadfence();",
        "__shared__ int is_last;",
        "a write of another block before",
    ),
    Bug(
        "two warps copy the same words",
        cases.slot_route,
        "int(threadIdx.x) + threads - int(blockDim.x)",
        "int(threadIdx.x) % kWarp",
        RACE,
    ),
    Bug(
        "all warps prepare the head",
        cases.join_heads,
        "if (threadIdx.x >= kWarp) return;",
        "",
        RACE,
    ),
    Bug(
        "no barrier before a step is multiplied",
        cases.experts_f16_product,
        "__syncthreads();\n    if (has_next) next.load",
        "if (has_next) next.load",
        RACE,
    ),
    Bug(
        "values are quantised before they are there",
        cases.experts_product,
        "__syncthreads();\n  for (int i = first + threadIdx.x;",
        "for (int i = first + threadIdx.x;",
        RACE,
    ),
    Bug(
        "a block quantises the rows of the next one, too",
        cases.experts_product,
        "i < first + count;",
        "i < first + 2 * count;",
        "of another block before|behind the end",
    ),
    Bug(
        "columns behind the last",
        cases.experts_f16_product,
        "if (column >= from.columns) return;",
        "",
        "behind the end|outside",
    ),
    Bug(
        "items behind the last",
        cases.experts_f16_product,
        "if (index >= items.count || row >= matrix.rows) continue;",
        "if (row >= matrix.rows) continue;",
        "behind the end|race|outside|of another block",
    ),
]

WRONG_NUMBERS = [
    Bug("a chosen expert stays", cases.route, "i * kWarp) keys[i] = kTaken;", "i * kWarp) {}", ""),
    Bug("the bias is taken away", cases.matvec, "product, part.bias", "product, -part.bias", ""),
    Bug(
        "half of a step's columns twice", cases.experts_f16_product, "b[2], b[3]", "b[2], b[2]", ""
    ),
    Bug(
        "items with the scales of others",
        cases.experts_f16_product,
        "items.row(item < items.count ? item : 0));",
        "items.row(item < items.count ? item / 2 : 0));",
        "",
    ),
    Bug("turns the other way", cases.heads, "cosines[i], -__fmul", "cosines[i], __fmul", ""),
]


class ChangedLaunches(CpuDevice):
    """A device that changes each launch of one kernel."""

    def __init__(self, entry: str, change: Callable[[Launch], Launch]) -> None:
        super().__init__()
        self._entry, self._change = entry, change

    def launch(self, launch: Launch) -> None:
        is_it = launch.kernel.entry.startswith(self._entry)
        super().launch(self._change(launch) if is_it else launch)


def planted(bug: Bug) -> CpuDevice:
    """Returns a device that runs the kernel with the bug planted in it."""
    name = bug.case.__name__
    source = kernel_source(name)
    assert source.count(bug.text) == 1, "the kernel has changed: plant the bug anew"
    return CpuDevice(texts={name: source.replace(bug.text, bug.instead)})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_kernels_as_they_are_pass_in_every_order(case: Case) -> None:
    forward = case(CpuDevice(order=FORWARD))
    for order in (BACKWARD, 7):
        np.testing.assert_array_equal(case(CpuDevice(order=order)), forward)


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_check_finds(bug: Bug) -> None:
    with pytest.raises(LaunchError, match=bug.says):
        bug.case(planted(bug))


@pytest.mark.parametrize("bug", WRONG_NUMBERS, ids=str)
def test_numbers_show(bug: Bug) -> None:
    assert not np.array_equal(bug.case(planted(bug)), bug.case(CpuDevice()))


@pytest.mark.parametrize(
    ("case", "change", "says"),
    [
        (cases.heads, lambda launch: replace(launch, shared_bytes=640), "outside every argument"),
        (cases.heads, lambda launch: replace(launch, writes=frozenset()), "of what is only read"),
        (cases.route, lambda launch: replace(launch, block=64), "race|outside|lanes"),
        (
            cases.matvec,
            lambda launch: replace(launch, arguments=(*launch.arguments[:-1], 1)),
            "is int, the kernel takes i4",
        ),
    ],
)
def test_launches_that_do_not_fit(
    case: Case, change: Callable[[Launch], Launch], says: str
) -> None:
    with pytest.raises(LaunchError, match=says):
        case(ChangedLaunches(case.__name__, change))
