"""A command that waits for other machines ends at a signal: at once, in one line, without abort."""

import signal
import socket
import time
from pathlib import Path

import pytest
from lazy_packages import needs
from machines import PROMPT, Machines, Process, ended, free_port

pytestmark = [needs("torch"), pytest.mark.native]
NOTE = "note: stopped before the model was loaded"


def wait_for_rendezvous(machines: Machines, process: Process) -> None:
    """Waits until the first rank has opened the rendezvous, and a little more."""
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", machines.port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            time.sleep(0.3)
            return
    raise AssertionError(process.communicate()[1])


def num_connections(machines: Machines) -> int:
    """Counts the open connections to the rendezvous, by the kernel's tables of them.

    torch connects by IPv6 to what is an address of IPv4.
    """
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    place = f":{machines.port:04X}"
    return sum(row[2].endswith(place) and row[3] == "01" for row in rows)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_server_says_one_line(machines: Machines, number: signal.Signals, code: int) -> None:
    server = machines.serve(str(free_port()))
    wait_for_rendezvous(machines, server)
    server.send_signal(number)
    assert ended(server, seconds=30) == (code, "", f"{NOTE}\n")


def test_other_commands_end(machines: Machines) -> None:
    running = machines.run(*PROMPT)
    wait_for_rendezvous(machines, running)
    running.send_signal(signal.SIGTERM)
    assert ended(running, seconds=30) == (143, "", "")


def test_a_rank_that_has_come_ends_too(machines: Machines) -> None:
    first = machines.run(*PROMPT, others=2)
    wait_for_rendezvous(machines, first)
    before = num_connections(machines)
    joined = machines.join()
    while num_connections(machines) == before:  # then it waits for the third
        assert joined.poll() is None, joined.communicate()
        time.sleep(0.1)
    time.sleep(0.3)
    joined.send_signal(signal.SIGTERM)
    code, _, err = ended(joined, seconds=30)
    assert (code, "terminate" in err, "Traceback" in err) == (143, False, False)
