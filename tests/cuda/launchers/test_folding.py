"""Which adjacent launches of a token become one."""

from device_arrays import empty

from sharpi.device.counting import CountingDevice
from sharpi.device.launch import Launch, Span
from sharpi.ops.cuda.launchers.attention.heads import HeadGroup, HeadRope, heads
from sharpi.ops.cuda.launchers.elementwise import join, quantise, split
from sharpi.ops.cuda.replay.step_replay import folded

HEADS, WIDTH, DIM, HALF = 4, 32, 32, 16


def files(*launches: Launch) -> list[str]:
    counters = empty(CountingDevice(), 4)
    calls = folded(launches, counters)
    return [call.kernel.file for call in calls if isinstance(call, Launch)]


def arena() -> Span:
    return empty(CountingDevice(), 1 << 16)


def test_what_writes_over_an_input_is_left() -> None:
    """Blocks of one launch do not wait for those that still read what is written over."""
    memory = arena()
    first, second, angles, out = (memory.part(4096 * i, 4096) for i in range(4))
    prepared = heads([HeadGroup(second, HEADS, DIM, rope=HeadRope(angles, HALF))], tokens=1)
    sizes = {"widths": (WIDTH, DIM), "runs": HEADS}
    assert files(prepared, join(first, second, out, **sizes)) == ["join_heads"]
    for place in (angles, memory.part(4096 * 2 + 4092, 4096)):
        assert files(prepared, join(first, second, place, **sizes)) == ["heads", "join"]
    cut = split(angles, (first, second), (WIDTH, DIM), runs=HEADS)
    for rows, count in ((out, 1), (angles, 2)):
        quantising = quantise(first, rows, tokens=HEADS, columns=WIDTH, planes=1)
        assert len(files(cut, quantising)) == count


def test_pairs_follow_each_other() -> None:
    memory = arena()
    x, first, second, angles, out, rows = (memory.part(4096 * i, 4096) for i in range(6))
    cut = split(x, (first, second), (WIDTH, DIM), runs=HEADS)
    quantising = quantise(first, rows, tokens=HEADS, columns=WIDTH, planes=1)
    prepared = heads([HeadGroup(second, HEADS, DIM, rope=HeadRope(angles, HALF))], tokens=1)
    joined = join(first, second, out, widths=(WIDTH, DIM), runs=HEADS)
    assert files(cut, quantising, prepared, joined) == ["split", "join_heads"]
