"""A rank that is killed or stopped, at every stage: the others end with one line, servers go on."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from lazy_packages import needs
from machines import FOREVER, PROMPT, Machines, Process, complete, ended, free_port, wait_for

pytestmark = [needs("torch"), pytest.mark.native, pytest.mark.slow]
NOTICED_SECONDS = 60  # about 8 on a machine that has nothing else to do
LOST = r"^error: rank 1 on \S+ (does not answer for 6 seconds|has ended or cannot be reached)$"


def require_one_line(process: Process) -> None:
    code, _, err = ended(process, seconds=NOTICED_SECONDS)
    assert code == 1
    assert re.search(LOST, err, re.MULTILINE), err
    assert "Traceback" not in err


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_lost_while_models_load(machines: Machines, way: signal.Signals) -> None:
    running = machines.run(*PROMPT)
    module = "tests.cluster.silent_rank"
    silent = machines.start(str(machines.port), module=module, stdin=subprocess.PIPE)
    assert silent.stdout is not None
    assert silent.stdout.readline() == "joined\n"
    silent.send_signal(way)
    require_one_line(running)


def test_a_rank_that_stops_in_a_prompt(machines: Machines, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text("The fox went out on a winter's night. " * 300)
    joined = machines.join()
    running = machines.run("-f", str(text), "-c", "4096", "-b", "16")
    assert running.stderr is not None
    while "runs layers" not in running.stderr.readline():
        continue
    joined.send_signal(signal.SIGSTOP)
    require_one_line(running)


def test_a_rank_that_stops_and_wakes_ends_by_itself(machines: Machines) -> None:
    joined = machines.join()
    running = machines.run(*PROMPT, *FOREVER)
    assert running.stdout is not None
    assert running.stdout.read(1)
    joined.send_signal(signal.SIGSTOP)
    require_one_line(running)
    joined.send_signal(signal.SIGCONT)
    code, _, err = ended(joined, seconds=NOTICED_SECONDS)
    assert code == 1
    assert re.search(r"^error: rank \d on \S+ ", err, re.MULTILINE)


def num_generated(url: str) -> float:
    """Returns how many tokens the server has generated."""
    with urlopen(f"{url}/metrics", timeout=NOTICED_SECONDS) as response:
        (found,) = re.findall(rb"^sharpi_generated_tokens_total (\S+)$", response.read(), re.M)
    return float(found)


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_a_running_request_gets_an_error_and_the_next_one_an_answer(
    machines: Machines, way: signal.Signals
) -> None:
    joined, port = machines.join(), str(free_port())
    server, url = machines.serve(port, "--context-shift"), f"http://127.0.0.1:{port}"
    wait_for(url, server)
    text, answers = complete(url), list[str]()
    before = num_generated(url)
    running = threading.Thread(target=lambda: answers.append(complete(url, 1_000_000)))
    running.start()
    while num_generated(url) == before:  # it runs on for minutes
        time.sleep(0.05)
    joined.send_signal(way)
    running.join(NOTICED_SECONDS)
    assert [answer[:3] for answer in answers] == ["503"]
    machines.join()
    assert complete(url) == text


def test_an_idle_server_notices_a_stopped_rank(machines: Machines) -> None:
    joined, port = machines.join(), str(free_port())
    server, url = machines.serve(port), f"http://127.0.0.1:{port}"
    wait_for(url, server)
    text = complete(url)
    joined.send_signal(signal.SIGSTOP)
    assert complete(url).startswith("503")
    machines.join()
    assert complete(url) == text


def worker(torchrun: Process, rank: int) -> int:
    """Waits for the process of a rank that torchrun has started, and returns its id."""
    wanted = f"RANK={rank}".encode()
    while torchrun.poll() is None:
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == torchrun.pid and wanted in path.read_bytes().split(b"\0"):
                    return int(path.parent.name)
        time.sleep(0.2)
    raise AssertionError(torchrun.communicate()[1])


def test_torchrun_starts_a_lost_rank_again(machines: Machines) -> None:
    """All ranks begin again, in a group of their own, and the answer is whole."""
    own = ["-m", "sharpi", "run", str(machines.model), *PROMPT, "-n", "400", "--ignore-eos"]
    how = ["--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.2"]
    port = f"--master-port={free_port()}"
    both = machines.start(*how, port, *own, "--no-log", module="torch.distributed.run")
    os.kill(worker(both, 1), signal.SIGKILL)
    code, out, err = ended(both, seconds=2 * NOTICED_SECONDS)
    assert code == 0, err
    assert out.endswith(ended(machines.start(*own[2:], "--no-log"))[1])
