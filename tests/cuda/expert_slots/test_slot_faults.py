"""Bugs planted in the slot kernels: each is found, by the checks or by wrong tables."""

from dataclasses import dataclass

import numpy as np
import pytest
from cpu_device import BACKWARD, CpuDevice
from reference_policy_make import make_policy
from slot_worlds import ExtraSlots, SlotWorld

from sharpi.device.device import Device
from sharpi.device.gpu_kernels import kernel_source
from sharpi.experts.policy_settings import PolicyKind, PolicySettings
from sharpi.ops.cuda.launchers.experts.slot_policy import PolicyRules

EXPERTS, USED, SLOTS = 9, 3, 5


@dataclass(frozen=True)
class Bug:
    """A planted bug: `text` of a kernel or its headers, and its replacement."""

    what: str
    kernel: str
    text: str
    instead: str
    says: str | None = None

    def __str__(self) -> str:
        return self.what


BUGS = [
    Bug(
        "no fence before an expert's words are set",
        "slot_policy",
        "if (leaves >= 0) evict(leaves);\n    __syncwarp();",
        "if (leaves >= 0) evict(leaves);",
        "race",
    ),
    Bug(
        "no barrier after the state is copied",
        "slot_policy",
        "memory.route[t] = ids[token.num_before * used + t];\n  __syncthreads();",
        "memory.route[t] = ids[token.num_before * used + t];",
        "race|before it is written",
    ),
    Bug(
        "one load too many",
        "gather_experts",
        "int64_t(count()) * in_all",
        "int64_t(count() + 1) * in_all",
        "behind the end|outside",
    ),
    Bug("an expert in use leaves", "slot_policy", "&& s.last_used[e] != busy", ""),
    Bug("a victim's address stays", "slot_policy", "tables.put(expert, expert);", ""),
    Bug(
        "staged experts stay away",
        "slot_policy",
        "if (!s.resident(e)) tables.put",
        "if (e < 0) tables.put",
    ),
    Bug("all leave unprotected", "slot_policy", "mul_as_cpu(kProtection, s.frequency[e])", "0.f"),
    Bug("the newest is demoted", "slot_policy", "s.stamp[e], e};", "-s.stamp[e], e};"),
    Bug("half of a copy", "gather_experts", "bytes / int(sizeof(Word))", "bytes / 32"),
    Bug("the first slot for all", "slot_policy", "? s.head->num_resident :", "? 0 :"),
]


def tokens(device: Device) -> None:
    """Runs some tokens with slru; raises AssertionError where a decision or a table is wrong."""
    chosen = PolicySettings(PolicyKind.SLRU, EXPERTS, USED, (SLOTS,), admission=True)
    reference = make_policy(chosen)
    rules = PolicyRules(PolicyKind.SLRU, 1, EXPERTS, USED, True)
    world = SlotWorld(device, rules, (SLOTS,), ExtraSlots(staging=USED))
    rng = np.random.default_rng(2)
    for _ in range(25):
        route = rng.choice(EXPERTS, USED, replace=False).tolist()
        reference.use(0, route)
        world.use(0, route)
        world.assert_true(0, range(EXPERTS))
        resident = world.tables.words.read_states()[0].slot_of >= 0
        np.testing.assert_array_equal(resident, reference.layers[0].resident)


@pytest.mark.parametrize("order", [BACKWARD, 7])
def test_kernels_as_they_are_pass_in_every_order(order: int) -> None:
    tokens(CpuDevice(order=order))


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_found(bug: Bug) -> None:
    source = kernel_source(bug.kernel)
    assert source.count(bug.text) == 1, "the kernel has changed: plant the bug anew"
    changed = source.replace(bug.text, bug.instead)
    with pytest.raises(AssertionError, match=bug.says):
        tokens(CpuDevice(texts={bug.kernel: changed}))
