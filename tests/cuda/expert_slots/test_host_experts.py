import time

import numpy as np
import pytest
from cpu_device import CpuDevice
from expert_weights import random_routes
from quant_weights import as_floats, random_weights
from reference_numbers import gated

from sharpi.errors import DeviceError
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu.program import ProgramLimits
from sharpi.ops.cuda.expert_slots import host_experts
from sharpi.ops.cuda.expert_slots.host_experts import HostExperts, Mailbox
from sharpi.ops.interface import Activation, ExpertWeights, StackedMatrix

pytestmark = pytest.mark.native
EXPERTS, HIDDEN, WIDTH, ITEMS = 4, 64, 96, 5


def stacked(name: str, rows: int, columns: int, seed: int) -> StackedMatrix:
    data = random_weights(QuantType.Q8_0, EXPERTS * rows, columns, seed)
    return StackedMatrix(
        name, QuantType.Q8_0, EXPERTS, rows, columns, data.reshape(EXPERTS, rows, -1)
    )


def layer(number: int) -> ExpertWeights:
    gate, up = (stacked(name, WIDTH, HIDDEN, 10 * number + i) for i, name in enumerate(("g", "u")))
    return ExpertWeights(gate, up, stacked("d", HIDDEN, WIDTH, 10 * number + 2), layer=number)


def dense(what: StackedMatrix) -> np.ndarray:
    rows = what.data.reshape(EXPERTS * what.rows, -1)
    return as_floats(what.quant_type, rows).reshape(EXPERTS, what.rows, what.columns)


def values(expert_weights: ExpertWeights, experts: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Returns the values of each item's expert, in float64."""
    assert expert_weights.gate is not None
    gate, up, down = map(dense, (expert_weights.gate, expert_weights.up, expert_weights.down))
    halves = zip(experts, x, strict=True)
    hidden = [gated(Activation.SILU, gate[e] @ row, up[e] @ row) for e, row in halves]
    return np.stack([down[e] @ h for e, h in zip(experts, hidden, strict=True)])


def test_layers_are_answered_as_they_ask_item_by_item() -> None:
    mailbox = Mailbox(CpuDevice(check=False), ITEMS, HIDDEN, HIDDEN)
    host, layers = mailbox.host, [layer(0), layer(1)]
    experts = HostExperts(mailbox, ProgramLimits(ITEMS, 1, 1, "f32"), num_threads=2)
    for expert_weights in layers:
        experts.add(expert_weights, Activation.SILU)
    experts.begin([1, 0, 1])
    host.weights[:] = 1
    for number, count in ((1, ITEMS), (0, 2), (1, 3)):
        ids, _ = random_routes(count, EXPERTS, 1)
        x = np.random.default_rng(number).standard_normal((count, HIDDEN)).astype(np.float32)
        host.num_items[0], host.experts[:count], host.rows[:count] = count, ids[:, 0], x
        host.reply[0], host.request[0] = 0, 1
        experts.await_next()
        assert (host.request[0], host.reply[0]) == (0, 1)
        wanted = values(layers[number], ids[:, 0], x)
        error = np.linalg.norm(host.values[:count] - wanted) / np.linalg.norm(wanted)
        assert error < 1e-5
    experts.end()  # nothing is left, so nothing is waited for
    experts.close()
    experts.close()


def test_no_items_are_answered_too() -> None:
    mailbox = Mailbox(CpuDevice(check=False), ITEMS, HIDDEN, HIDDEN)
    experts = HostExperts(mailbox, ProgramLimits(ITEMS, 1, 1), num_threads=1)
    experts.add(layer(0), Activation.SILU)
    for _ in range(3):
        experts.begin([0])
        mailbox.host.request[0] = 1
        experts.end()
        assert mailbox.host.reply[0] == 1
    experts.close()


def test_a_launch_that_waits_for_the_gpu_is_no_deadlock() -> None:
    """A launch may return only once the GPU has room, and so after the host's answers."""
    mailbox = Mailbox(CpuDevice(check=False), ITEMS, HIDDEN, HIDDEN)
    host = mailbox.host
    experts = HostExperts(mailbox, ProgramLimits(ITEMS, 1, 1), num_threads=1)
    experts.add(layer(0), Activation.SILU)
    experts.begin([0] * 50)
    for _ in range(50):  # the GPU, while the launch does not return
        host.reply[0] = 0
        host.request[0] = 1
        while not host.reply[0]:
            time.sleep(0)
    experts.end()
    experts.close()


def test_a_step_that_fails_leaves_the_thread_ready() -> None:
    mailbox = Mailbox(CpuDevice(check=False), ITEMS, HIDDEN, HIDDEN)
    experts = HostExperts(mailbox, ProgramLimits(ITEMS, 1, 1), num_threads=1)
    experts.add(layer(0), Activation.SILU)
    experts.begin([0, 0])
    experts.cancel()
    experts.begin([0])
    mailbox.host.request[0] = 1
    experts.end()
    experts.begin([0])
    experts.close()  # while it waits


def test_a_gpu_that_never_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_experts, "_TIMEOUT_MS", 10)
    mailbox = Mailbox(CpuDevice(check=False), ITEMS, HIDDEN, HIDDEN)
    experts = HostExperts(mailbox, ProgramLimits(ITEMS, 1, 1), num_threads=1)
    experts.add(layer(0), Activation.SILU)
    experts.begin([0])
    with pytest.raises(DeviceError, match="does not respond"):
        experts.end()
    experts.close()
