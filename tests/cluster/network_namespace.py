"""Moves this process into a network namespace, as `ip netns exec` does before it runs a command."""

import ctypes
import os
from pathlib import Path

_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000  # of setns and unshare
_NOT_BACK = 0x00080000 | 0x00004000  # of mount: MS_SLAVE | MS_REC, so that no mount is seen outside
_DETACH = 2  # of umount2


def enter(name: str) -> None:
    """Moves this process there; its own /sys then shows the interfaces of that namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{name}").open() as namespace:
        _require(libc.setns(namespace.fileno(), _NEW_NETWORK))
    _require(libc.unshare(_NEW_MOUNTS))
    _require(libc.mount(b"", b"/", b"none", ctypes.c_ulong(_NOT_BACK), None))
    _require(libc.umount2(b"/sys", _DETACH))
    _require(libc.mount(name.encode(), b"/sys", b"sysfs", ctypes.c_ulong(0), None))


def _require(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
