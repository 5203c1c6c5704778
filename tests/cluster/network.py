"""Machines on one: a network namespace for each, and a link between them that is slow or loses.

The kernel's netem delays packets where it has that. Otherwise a process between two TUN devices
does: it takes each packet from one namespace and gives it to the other in its time, or never.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

NUM_MACHINES = 2
_SET_INTERFACE, _TUN_WITHOUT_INFO = 0x400454CA, 0x0001 | 0x1000  # TUNSETIFF; IFF_TUN | IFF_NO_PI
_LINK = Path(__file__).with_name("slow_link.py")


class Link(NamedTuple):
    """A link: seconds that a packet takes, bits per second, and the part of packets it loses."""

    name: str
    delay: float
    rate: float
    loss: float = 0.0


ONE_GIGABIT = Link("1 GbE, 0.3 ms", 0.3e-3, 1e9)
TEN_GIGABIT = Link("10 GbE, 0.08 ms", 0.08e-3, 10e9)
LOSSY = Link("1 GbE, 0.3 ms, 1 % loss", 0.3e-3, 1e9, 0.01)
LINKS = [ONE_GIGABIT, TEN_GIGABIT, LOSSY]


def why_not() -> str | None:
    """Returns what this machine lacks for network namespaces; None if nothing."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "iproute2 is not installed"
    if _run("ip", "netns", "add", "sharpi-trial").returncode:
        return "this kernel or container allows no network namespaces"
    _run("ip", "netns", "del", "sharpi-trial")
    return None


class Network:
    """Two machines, `address(0)` and `address(1)`, with a link of this kind between them.

    `names` are those of their namespaces.
    """

    def __init__(self, link: Link) -> None:
        self.names = [f"sharpi-{os.getpid()}-{number}" for number in range(NUM_MACHINES)]
        self._emulator: subprocess.Popen[bytes] | None = None
        try:
            for name in self.names:
                _require("ip", "netns", "add", name)
                _require("ip", "-n", name, "link", "set", "lo", "up")
            self.is_netem = self._connect_by_netem(link)
            if not self.is_netem:
                self._connect_by_tun(link)
        except BaseException:
            self.close()
            raise

    def address(self, number: int) -> str:
        """The address of a machine."""
        return f"10.123.0.{number + 1}"

    def cut(self) -> None:
        """Drops all packets from now on, without closing any connection."""
        if self._emulator is not None:
            self._emulator.send_signal(signal.SIGSTOP)
            return
        for name in self.names:
            _require("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "link0", "root",
                     "netem", "loss", "100%")  # fmt: skip

    def mend(self, link: Link) -> None:
        """Lets packets through again."""
        if self._emulator is not None:
            self._emulator.send_signal(signal.SIGCONT)
            return
        for name in self.names:
            self._set_netem(name, link)

    def _connect_by_netem(self, link: Link) -> bool:
        """Joins the namespaces by a pair of virtual Ethernet devices; False without netem."""
        first, second = self.names
        _require("ip", "-n", first, "link", "add", "link0", "type", "veth", "peer", "name", "link0",
                 "netns", second)  # fmt: skip
        for number, name in enumerate(self.names):
            self._bring_up(number)
            if self._set_netem(name, link).returncode:
                _require("ip", "-n", first, "link", "del", "link0")
                return False
        return True

    @staticmethod
    def _set_netem(name: str, link: Link) -> "subprocess.CompletedProcess[bytes]":
        return _run(
            "ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", "link0", "root", "netem",
            "delay", f"{link.delay * 1e6:.0f}us", "rate", f"{link.rate / 1e6:.0f}mbit", "loss",
            f"{100 * link.loss}%", "limit", "100000",
        )  # fmt: skip

    def _bring_up(self, number: int) -> None:
        name = self.names[number]
        _require("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "link0")
        _require("ip", "-n", name, "link", "set", "link0", "up")

    def _connect_by_tun(self, link: Link) -> None:
        devices = [self._tun(number) for number in range(NUM_MACHINES)]
        numbers = [*map(str, devices), *map(str, link[1:])]
        self._emulator = subprocess.Popen([sys.executable, str(_LINK), *numbers], pass_fds=devices)
        for device in devices:
            os.close(device)

    def _tun(self, number: int) -> int:
        """Opens a device whose packets a process sees, and gives it to a namespace."""
        device, name = os.open("/dev/net/tun", os.O_RDWR), f"shp{os.getpid() % 100000}x{number}"
        fcntl.ioctl(
            device, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_INFO)
        )
        _require("ip", "link", "set", name, "netns", self.names[number], "name", "link0")
        self._bring_up(number)
        return device

    def close(self) -> None:
        """Ends the link and removes the machines."""
        if self._emulator is not None:
            self._emulator.kill()
            self._emulator.wait()
        for name in self.names:
            with contextlib.suppress(OSError):
                _run("ip", "netns", "del", name)


def _run(*command: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command, capture_output=True, check=False)


def _require(*command: str) -> None:
    done = _run(*command)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.decode().strip()}")
