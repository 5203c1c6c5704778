"""The launches of a prompt start as they are made, not after the last one was made."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from cpu_device import CpuDevice

from sharpi.device.launch import Launch
from sharpi.engine.engine import Engine
from sharpi.engine.sequence import Sequence as Text
from sharpi.ops.cuda.recorded import Call, Calls, StepShape
from sharpi.ops.cuda.replay import step_replay
from sharpi.resources import demo_model

pytestmark = pytest.mark.native
Load = Callable[..., Engine]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """Returns every launch twice: when it is made, and when it starts."""
    found: list[Launch] = []
    make, launch = step_replay._calls, CpuDevice.launch

    def watched_calls(operations: Sequence[Calls], step: StepShape) -> Iterator[Call]:
        for call in make(operations, step):
            if isinstance(call, Launch):
                found.append(call)
            yield call

    def watched_launch(self: CpuDevice, what: Launch) -> None:
        found.append(what)
        launch(self, what)

    monkeypatch.setattr(step_replay, "_calls", watched_calls)
    monkeypatch.setattr(CpuDevice, "launch", watched_launch)
    return found


def test_each_launch_starts_before_the_next_is_made(load: Load, events: list[Launch]) -> None:
    engine = load(demo_model(), context_size=64, batch_size=16)
    events.clear()
    Text(engine.runner).extend(list(range(1, 9)))
    assert len(events) > 20
    assert all(made is started for made, started in zip(events[::2], events[1::2], strict=True))
