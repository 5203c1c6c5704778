"""The heaps of the C library: few of them, and without the pages that nobody uses."""

import ctypes
import gc
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from served_demo import ServedDemo

from sharpi.serve import web_server
from sharpi.system.process import trim_heaps

LIBC = ctypes.CDLL(None)
pytestmark = pytest.mark.skipif(not hasattr(LIBC, "malloc_trim"), reason="needs glibc")
NUM_BLOCKS, BLOCK_BYTES = 1000, 64 << 10
COUNT_HEAPS = """
import ctypes, sys, threading
from sharpi.system.process import share_heaps

share_heaps()
libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(8)

def work():
    together.wait()
    libc.malloc(100_000)

threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def test_threads_share_heaps(tmp_path: Path) -> None:
    found = tmp_path / "heaps.xml"
    subprocess.run([sys.executable, "-c", COUNT_HEAPS, str(found)], check=True)
    assert 1 <= found.read_text().count("<heap nr=") <= 2


def test_free_pages_between_blocks_in_use_are_given_back() -> None:
    malloc, free = LIBC.malloc, LIBC.free
    malloc.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [malloc(BLOCK_BYTES) for _ in range(NUM_BLOCKS)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK_BYTES)
    for block in blocks[:-1]:
        free(block)
    full = resident_bytes()
    trim_heaps()
    assert full - resident_bytes() > NUM_BLOCKS * BLOCK_BYTES // 2
    free(blocks[-1])


@pytest.mark.native
def test_a_server_gives_back_what_requests_left(
    serve_demo: Callable[..., ServedDemo], monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed, collected = threading.Event(), threading.Event()
    monkeypatch.setattr(web_server, "_TICKS_BETWEEN_TRIMS", 2)
    monkeypatch.setattr(web_server, "trim_heaps", trimmed.set)
    server = serve_demo()
    assert server.complete().status_code == 200
    trimmed.clear()
    gc.callbacks.append(lambda phase, info: collected.set())
    try:
        assert trimmed.wait(60)
        assert collected.wait(60)
    finally:
        gc.callbacks.pop()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
