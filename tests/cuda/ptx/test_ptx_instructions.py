"""Each instruction of PTX against what the PTX ISA says of it, in snippets of a few lines."""

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from ptx_engine import Block, PtxFault, PtxKernel, Region
from ptx_module import PtxError

HEAD = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 k_param_0)
{
  .reg .pred %p<9>;
  .reg .b16 %h<9>;
  .reg .b32 %r<40>;
  .reg .f32 %f<9>;
  .reg .b64 %d<9>;
  .shared .align 16 .b8 cells[512];
  mov.u32 %r0, %tid.x;
  ld.param.u64 %d0, [k_param_0];
  mul.wide.u32 %d1, %r0, 4;
  add.s64 %d1, %d0, %d1;
"""
TAIL = "\n  st.global.u32 [%d1], %r1;\n  ret;\n}\n"


def run(body: str, threads: int = 32, seed: Sequence[int] = ()) -> list[int]:
    """What a word of each thread holds after the body, which sets %r1; the words begin as seed."""
    out = np.zeros(threads, np.uint32)
    out[: len(seed)] = seed
    address = out.ctypes.data
    kernel = PtxKernel(HEAD + body + TAIL, "k")
    region = Region(address, address + out.nbytes, 0, True)
    kernel.run(Block((1, 1, 1), threads), [struct.pack("<Q", address)], [region])
    found: list[int] = out.tolist()
    return found


def bits(value: float) -> int:
    """The word of a float in 32 bits."""
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


def real(value: float) -> str:
    """A literal of PTX."""
    return f"0f{bits(value):08X}"


INTEGERS = [
    ("sub.s32 %r1, 3, 5", -2),
    ("mul.lo.s32 %r1, 65537, 65537", (1 << 17) + 1),
    ("mad.lo.s32 %r1, 3, -4, 5", -7),
    ("mul.hi.u32 %r1, 0x80000000, 6", 3),
    ("mul.hi.s32 %r1, 0x80000000, 6", -3),
    ("div.s32 %r1, -7, 2", -3),
    ("rem.s32 %r1, -7, 2", -1),
    ("div.u32 %r1, -7, 2", 0x7FFFFFFC),
    ("min.s32 %r1, -1, 1", -1),
    ("min.u32 %r1, -1, 1", 1),
    ("max.s32 %r1, -1, 1", 1),
    ("abs.s32 %r1, -9", 9),
    ("dp4a.s32.s32 %r1, 0xFF020304, 0x02030405, 100", 100 - 2 + 6 + 12 + 20),
    ("dp4a.u32.s32 %r1, 0xFF000001, 0xFE000003, 0", 255 * -2 + 3),
    ("and.b32 %r1, 12, 10", 8),
    ("or.b32 %r1, 12, 10", 14),
    ("xor.b32 %r1, 12, 10", 6),
    ("not.b32 %r1, 0", -1),
    ("shl.b32 %r1, 1, 32", 0),
    ("shr.s32 %r1, -8, 40", -1),
    ("shr.u32 %r1, -8, 28", 15),
    ("shf.r.wrap.b32 %r1, 0x11111111, 0x22222222, 36", 0x21111111),
    ("shf.l.wrap.b32 %r1, 0x11111111, 0x22222222, 4", 0x22222221),
    ("prmt.b32 %r1, 0x33221100, 0x77665544, 0x7531", 0x77553311),
    ("prmt.b32 %r1, 0x33221180, 0x77665544, 0x1298", 0x11220000 | 0x00FF),
    ("lop3.b32 %r1, 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA, 0xE4", 0xE4E4E4E4),
    ("brev.b32 %r1, 1", 1 << 31),
    ("popc.b32 %r1, 0xF0F1", 9),
    ("clz.b32 %r1, 1", 31),
    ("bfind.u32 %r1, 0x90", 7),
    ("bfind.shiftamt.u32 %r1, 0x90", 24),
    ("bfind.s32 %r1, -1", -1),
    ("bfi.b32 %r1, 0x3, 0xFF00, 4, 8", 0xF030),
    ("bfe.u32 %r1, 0xABCD, 4, 8", 0xBC),
    ("bfe.s32 %r1, 0xABCD, 4, 8", -0x44),
    ("cvt.s16.s8 %h0, 0x1FE; cvt.s32.s16 %r1, %h0", -2),
    ("cvt.u16.u32 %h0, 0x12345; cvt.u32.u16 %r1, %h0", 0x2345),
    ("cvt.s64.s32 %d2, -3; shr.s64 %d2, %d2, 32; cvt.u32.u64 %r1, %d2", -1),
    ("cvt.u64.u32 %d2, -3; shr.s64 %d2, %d2, 32; cvt.u32.u64 %r1, %d2", 0),
    ("mul.wide.s32 %d2, -3, 5; shr.s64 %d2, %d2, 32; cvt.u32.u64 %r1, %d2", -1),
    ("mad.wide.u32 %d2, -1, 2, 4; shr.u64 %d2, %d2, 32; cvt.u32.u64 %r1, %d2", 2),
    ("mov.b64 %d2, {7, 9}; mov.b64 {%r2, %r1}, %d2", 9),
    ("mov.b32 %r1, {%h0, %h1}; mov.b32 {%h0, %h1}, 0x10002; cvt.u32.u16 %r1, %h0", 2),
    ("setp.lt.u32 %p1, -1, 1; selp.b32 %r1, 4, 5, %p1", 5),
    ("setp.lt.s32 %p1|%p2, -1, 1; selp.b32 %r1, 4, 5, %p2", 5),
    ("setp.eq.s32 %p1, 1, 1; setp.ne.and.s32 %p2, 1, 2, !%p1; selp.b32 %r1, 4, 5, %p2", 5),
    ("mov.u32 %r1, 1; setp.eq.s32 %p1, 1, 2; @%p1 mov.u32 %r1, 2; @!%p1 add.s32 %r1, %r1, 5", 6),
    ("{ .reg .b32 %r1; mov.u32 %r1, 5; } mov.u32 %r1, 6", 6),
    ("mov.u32 %r1, %ntid.x; mov.u32 %r2, %nctaid.y; add.s32 %r1, %r1, %r2", 33),
]


@pytest.mark.parametrize(("body", "want"), INTEGERS)
def test_integers(body: str, want: int) -> None:
    assert run(f"{body};") == [want & 0xFFFFFFFF] * 32


TINY = 1e-40
FLOATS = [
    ("add.f32 %f0, {a}, {b}", (TINY, 0.0), TINY),
    ("add.ftz.f32 %f0, {a}, {b}", (TINY, 0.0), 0.0),
    ("mul.rn.ftz.f32 %f0, {a}, {b}", (1e-30, 1e-10), 0.0),
    ("fma.rn.f32 %f0, {a}, {b}, {c}", (1 + 2**-12, 1 - 2**-12, -1.0), -(2.0**-24)),
    ("fma.rm.ftz.f32 %f0, {a}, {b}, {c}", (1.0, 1.0, 2.0**-30), 1.0),
    ("add.rz.ftz.f32 %f0, {a}, {b}", (-1.0, 2.0**-30), -1 + 2.0**-24),
    ("add.rp.f32 %f0, {a}, {b}", (1.0, 2.0**-30), 1 + 2.0**-23),
    ("div.rn.ftz.f32 %f0, {a}, {b}", (1.0, 3.0), float(np.float32(1) / np.float32(3))),
    ("rcp.approx.ftz.f32 %f0, {a}", (4.0,), 0.25),
    ("rsqrt.approx.ftz.f32 %f0, {a}", (16.0,), 0.25),
    ("sqrt.rn.ftz.f32 %f0, {a}", (9.0,), 3.0),
    ("ex2.approx.ftz.f32 %f0, {a}", (-3.0,), 0.125),
    ("min.ftz.f32 %f0, {a}, {b}", (float("nan"), 2.0), 2.0),
    ("max.ftz.f32 %f0, {a}, {b}", (-0.0, 0.0), 0.0),
    ("abs.ftz.f32 %f0, {a}", (-2.0,), 2.0),
    ("neg.ftz.f32 %f0, {a}", (2.0,), -2.0),
    ("copysign.f32 %f0, {a}, {b}", (-1.0, 3.0), -3.0),
    ("cvt.ftz.sat.f32.f32 %f0, {a}", (1.5,), 1.0),
    ("cvt.rn.f32.s32 %f0, 16777217", (), 16777216.0),
    ("cvt.rn.f32.u32 %f0, -1", (), 4294967296.0),
    ("cvt.rn.f16.f32 %h0, {a}; cvt.f32.f16 %f0, %h0", (2049.0,), 2048.0),
    ("cvt.rn.f16.f32 %h0, {a}; cvt.f32.f16 %f0, %h0", (2.0**-25 * 1.5,), 2.0**-24),
    ("cvt.rn.f16.f32 %h0, {a}; cvt.f32.f16 %f0, %h0", (65520.0,), float("inf")),
    (
        "cvt.rn.f16x2.f32 %r2, {a}, {b}; mov.b32 {{%h0, %h1}}, %r2; cvt.f32.f16 %f0, %h1",
        (3, 4),
        3.0,
    ),
    ("cvt.rn.bf16.f32 %h0, {a}; cvt.f32.bf16 %f0, %h0", (1 + 2.0**-8,), 1.0),
    (
        "selp.f32 %f0, {a}, {b}, %p0; setp.nan.f32 %p0, {c}, {a}; selp.f32 %f0, {a}, {b}, %p0",
        (1.0, 2.0, float("nan")),
        1.0,
    ),
    (
        "setp.lt.ftz.f32 %p0, {a}, {b}; selp.f32 %f0, {b}, {a}, %p0",
        (float("nan"), 7.0),
        float("nan"),
    ),
    ("setp.ltu.ftz.f32 %p0, {a}, {b}; selp.f32 %f0, {b}, {a}, %p0", (float("nan"), 7.0), 7.0),
]


@pytest.mark.parametrize(("body", "operands", "want"), FLOATS)
def test_floats(body: str, operands: tuple[float, ...], want: float) -> None:
    text = body.format(**dict(zip("abc", map(real, operands), strict=False)))
    found = run(f"{text}; mov.b32 %r1, %f0;")[0]
    assert found == bits(want) or (want != want and found & 0x7FFFFFFF > 0x7F800000)


@pytest.mark.parametrize(
    ("opcode", "value", "want"),
    [
        ("rni", 2.5, 2),
        ("rzi", -2.9, -2),
        ("rmi", -2.1, -3),
        ("rpi", 2.1, 3),
        ("rni", 1e20, 2**31 - 1),
        ("rzi", float("nan"), 0),
    ],
)
def test_floats_to_integers(opcode: str, value: float, want: int) -> None:
    assert run(f"cvt.{opcode}.s32.f32 %r1, {real(value)};")[0] == want & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("shfl.sync.bfly.b32 %r1, %r0, 5, 31, -1", [lane ^ 5 for lane in range(32)]),
        ("shfl.sync.up.b32 %r1, %r0, 2, 0, -1", [max(lane - 2, lane % 2) if lane > 1 else lane
                                                 for lane in range(32)]),
        ("shfl.sync.down.b32 %r1, %r0, 1, 31, -1", [min(lane + 1, 31) for lane in range(32)]),
        ("shfl.sync.idx.b32 %r1, %r0, 3, 0x181F, -1", [lane // 8 * 8 + 3 for lane in range(32)]),
        ("and.b32 %r2, %r0, 1; setp.eq.s32 %p1, %r2, 0; vote.sync.ballot.b32 %r1, %p1, -1",
         [0x55555555] * 32),
        ("setp.eq.s32 %p1, %r0, 7; vote.sync.any.pred %p2, %p1, -1; selp.b32 %r1, 1, 0, %p2",
         [1] * 32),
        ("atom.global.add.u32 %r2, [%d0], 1; bar.sync 0; ld.global.u32 %r1, [%d0]",
         [32] * 32),
        ("setp.lt.s32 %p1, %r0, 9; bar.red.popc.u32 %r1, 0, %p1", [9] * 32),
        ("redux.sync.add.s32 %r1, %r0, -1", [496] * 32),
    ],
)  # fmt: skip
def test_lanes(body: str, want: list[int]) -> None:
    assert run(f"{body};") == want


def test_lanes_part_and_meet() -> None:
    """Each lane loops as often as its number says; the shuffle behind finds all of them."""
    body = """
      mov.u32 %r2, 0;
      mov.u32 %r3, 0;
    LOOP:
      setp.ge.u32 %p1, %r2, %r0;
      @%p1 bra DONE;
      add.s32 %r2, %r2, 1;
      add.s32 %r3, %r3, %r2;
      bra.uni LOOP;
    DONE:
      shfl.sync.idx.b32 %r1, %r3, 31, 31, -1;
    """
    assert run(body) == [496] * 32


STORE = """
  mov.u32 %r2, cells;
  mad.lo.s32 %r3, %r0, 4, %r2;
  st.shared.u32 [%r3], %r0;
"""
NEXT = "add.s32 %r4, %r0, 1; rem.u32 %r4, %r4, 64; mad.lo.s32 %r4, %r4, 4, %r2;"


def test_shared_memory() -> None:
    body = f"{STORE} bar.sync 0; {NEXT} ld.shared.u32 %r1, [%r4];"
    assert run(body, 64) == [(lane + 1) % 64 for lane in range(64)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{STORE} {NEXT} ld.shared.u32 %r1, [%r4];", "race with a write of thread"),
        (f"{STORE} bar.warp.sync -1; {NEXT} ld.shared.u32 %r1, [%r4];", "race with a write"),
        (f"{STORE} bar.sync 0; {NEXT} ld.shared.u32 %r1, [%r4]; st.shared.u32 [%r3], 1;",
         "race with a read of thread"),
        ("ld.shared.u32 %r1, [cells];", "read before it is written"),
        ("st.shared.u32 [cells+512], 1;", "outside every variable"),
        ("st.shared.u32 [cells+2], 1;", "misaligned"),
        ("ld.global.v2.u32 {%r1, %r2}, [%d0+4];", "misaligned"),
        ("ld.global.u32 %r1, [%d0+256];", "4-byte read"),
        ("st.global.u32 [%d0+-4], 1;", "4-byte write"),
        ("setp.lt.s32 %p1, %r0, 40; @%p1 bra IN; bra OUT; IN: bar.sync 1; OUT: bar.sync 0;",
         "barrier"),
        ("setp.lt.s32 %p1, %r0, 8; @%p1 bra OUT; shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; OUT: "
         "mov.u32 %r1, 1;", "wait"),
        ("trap;", "traps"),
    ],
)  # fmt: skip
def test_faults(body: str, message: str) -> None:
    with pytest.raises(PtxFault, match=message):
        run(body, 64)


def test_unknown_instructions_are_named() -> None:
    with pytest.raises(PtxError, match=r"unknown instruction wgmma\.fence\.sync\.aligned"):
        run("wgmma.fence.sync.aligned;")
    with pytest.raises(PtxError, match="register %q0 is not declared"):
        run("mov.u32 %r1, %q0;")
