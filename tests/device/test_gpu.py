"""A card through CuPy and torch, both stood in for: what is refused, and what they are given."""

from functools import partial

import numpy as np
import pytest
from stand_ins import OTHER_ERROR, OUT_OF_MEMORY, Card, Function, install

from sharpi.device.cuda import CudaDevice
from sharpi.device.gpu import open_card
from sharpi.device.launch import Kernel, Launch, Span
from sharpi.device.stream_words import StreamWordError
from sharpi.errors import DeviceError
from sharpi.ops.cuda.launchers.elementwise import sigmoid


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def device(card: Card, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    install(monkeypatch, card)
    return open_card()


def refusal(monkeypatch: pytest.MonkeyPatch, card: Card, *missing: str) -> str:
    install(monkeypatch, card, *missing)
    with pytest.raises(DeviceError) as caught:
        open_card()
    return str(caught.value)


@pytest.mark.parametrize("missing", ["cupy", "torch"])
def test_a_missing_package_is_named_with_the_extra(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    message = refusal(monkeypatch, Card(), missing)
    assert message.startswith(f"{missing} is missing")
    assert "pip install '.[cuda13]'" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (Card(driver=0), ["no NVIDIA driver", "sharpi doctor"]),
        (Card(driver=12080), ["runs CUDA 12.8", "CuPy wants 13.0", ".[cuda12]"]),
        (Card(driver=11080, runtime=11080), ["runs CUDA 11.8", "update the driver"]),
        (Card(driver=11040, runtime=12090), ["runs CUDA 11.4", ".[cuda12]"]),
        (Card(count=0), ["shows no card"]),
        (Card(failing={"getDeviceCount": OTHER_ERROR}), ["does not answer", "719"]),
        (Card(capability="70"), ["compute capability 7.0", "needs 7.5"]),
        (Card(torch_sees_it=False), ["torch 9.9 has no CUDA", ".[cuda13]"]),
        (
            Card(torch_sees_it=False, driver=12080, runtime=12040),
            ["torch 9.9 has no CUDA", ".[cuda12]"],
        ),
    ],
)
def test_refusals_say_what_to_do_in_one_line(
    monkeypatch: pytest.MonkeyPatch, card: Card, words: list[str]
) -> None:
    message = refusal(monkeypatch, card)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize("capability", ["75", "90", "100", "120"])
def test_capabilities_of_two_and_three_digits(
    monkeypatch: pytest.MonkeyPatch, capability: str
) -> None:
    install(monkeypatch, Card(capability=capability))
    assert open_card().name == "Some Card"


def test_an_older_runtime_under_a_newer_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Card(driver=13000, runtime=12090))
    assert open_card().free_bytes == 5 << 30


def test_one_stream_of_its_own(card: Card, device: CudaDevice) -> None:
    assert card.calls("use") == [[0]]
    assert card.calls("Stream") == [[True]]
    device.synchronise()
    assert len(card.calls("synchronize")) == 1


def test_a_launch_as_cupy_gets_it(card: Card, device: CudaDevice) -> None:
    memory = device.allocate(100)
    data = Span(memory, 12, 80)
    arguments = (data, None, np.int32(-3), np.int64(1 << 40), np.float32(0.5))
    kernel = Kernel("matvec", "matvec_q4_k", "q4_k")
    device.launch(Launch(kernel, (7, 2, 1), 96, arguments, frozenset({0}), 1000))
    ((function, grid, block, passed, shared),) = card.calls("launch")
    assert function.entry == "matvec_q4_k"
    assert (grid, block, shared) == ((7, 2, 1), (96,), 1000)
    assert passed == (0x7000 + 12, 0, -3, 1 << 40, 0.5)
    kinds = [np.uint64, np.uint64, np.int32, np.int64, np.float32]
    assert [type(value) for value in passed] == kinds
    assert function.max_dynamic_shared_size_bytes == 48 << 10


def test_a_module_is_compiled_once_for_a_quant_type(card: Card, device: CudaDevice) -> None:
    span = Span(device.allocate(4), 0, 4)
    for entry, kind in (
        ("matvec_q4_k", "q4_k"),
        ("matvec_one_q4_k", "q4_k"),
        ("matvec_f16", "f16"),
    ):
        for _ in range(2):
            kernel = Kernel("matvec", entry, kind)
            device.launch(Launch(kernel, (1, 1, 1), 32, (span,), frozenset()))
    modules = [module for (module,) in card.calls("compile")]
    assert [module.options for module in modules] == [
        ("-std=c++17", "-DONLY_Q4_K"),
        ("-std=c++17", "-DONLY_F16"),
    ]
    assert '#include "' not in modules[0].code


def test_a_file_without_types_is_compiled_whole(card: Card, device: CudaDevice) -> None:
    device.launch(sigmoid(Span(device.allocate(12), 0, 12), count=3))
    assert [module.options for (module,) in card.calls("compile")] == [("-std=c++17",)]


def test_more_shared_memory_has_to_be_asked_for(card: Card, device: CudaDevice) -> None:
    launch = Launch(Kernel("heads", "heads"), (1, 1, 1), 32, (), frozenset(), 90 << 10)
    device.launch(launch)
    function: Function = card.calls("launch")[0][0]
    assert function.max_dynamic_shared_size_bytes == 90 << 10


def test_copies_wait_for_the_stream(card: Card, device: CudaDevice) -> None:
    source, target = np.arange(6, dtype=np.int32), np.zeros(3, np.int32)
    span = Span(device.allocate(64), 16, 24)
    device.upload(span, source)
    device.download(span, target)
    up, down = card.calls("memcpyAsync")
    stream = card.stream.ptr
    assert up == [0x7010, source.ctypes.data, 24, 1, stream]
    assert down == [target.ctypes.data, 0x7010, 12, 2, stream]
    assert [name for name, *_ in card.log[-4:]] == ["memcpyAsync", "synchronize"] * 2


def test_copies_stay_inside_their_span(device: CudaDevice) -> None:
    span = Span(device.allocate(64), 0, 8)
    with pytest.raises(ValueError, match="12 bytes for a span of 8"):
        device.upload(span, np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="12 bytes for a span of 8"):
        device.download(span, np.zeros(3, np.int32))


def test_memory_that_is_not_there(card: Card, device: CudaDevice) -> None:
    card.failing["Memory"] = OUT_OF_MEMORY
    with pytest.raises(DeviceError, match=r"5.* left, not .*lower -c, -b or --vram"):
        device.allocate(6 << 30)
    card.failing["Memory"] = OTHER_ERROR
    with pytest.raises(DeviceError, match="the card failed: cudaError 719"):
        device.allocate(1)


def test_page_locked_memory_is_the_hosts_too(card: Card, device: CudaDevice) -> None:
    memory, host = device.mapped(50)
    assert card.calls("PinnedMemory") == [[50, 3]]  # mapped and portable
    host[:] = np.arange(50)
    assert memory.address == host.ctypes.data
    assert (memory.num_bytes, host[49]) == (50, 49)
    card.failing["PinnedMemory"] = OUT_OF_MEMORY
    with pytest.raises(DeviceError, match=r"page-locks no .*raise --vram or lower --ram"):
        device.mapped(50)


def test_no_bytes_still_have_an_address(card: Card, device: CudaDevice) -> None:
    assert device.allocate(0).num_bytes == 0
    assert card.calls("Memory") == [[1]]


def test_a_graph_is_captured_once_and_replayed(card: Card, device: CudaDevice) -> None:
    span = Span(device.allocate(12), 0, 12)
    replay = device.record([partial(device.launch, sigmoid(span, count=3))] * 2)
    names = [name for name, *_ in card.log]
    assert names[names.index("begin_capture") :] == [
        "begin_capture", "compile", "launch", "launch", "end_capture",
    ]  # fmt: skip
    for _ in range(3):
        replay()
    assert card.calls("replay") == [[card.stream]] * 3
    assert len(card.calls("launch")) == 2


def test_a_capture_ends_where_something_fails(card: Card, device: CudaDevice) -> None:
    def fail() -> None:
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        device.record([fail])
    assert len(card.calls("end_capture")) == 1


def test_words_that_cannot_be_captured_are_done_call_by_call(
    card: Card, device: CudaDevice
) -> None:
    done = []

    def work() -> None:
        done.append(len(card.calls("end_capture")))
        if len(done) == 1:
            raise StreamWordError("the driver waits for no words in a stream (error 900)")

    replay = device.record([work])
    assert done == [0], "tried within a capture"
    assert len(card.calls("end_capture")) == 1
    replay()
    replay()
    assert done == [0, 1, 1]
    assert not card.calls("replay")
