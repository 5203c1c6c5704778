"""Experts in another process's memory: the text stays the same, also if that process is lost."""

import re
import signal
from pathlib import Path

import pytest
from lazy_packages import needs
from machines import PROMPT, Machines, Process, ended

from sharpi.experts.stats.stats_file import read_stats

pytestmark = [needs("torch"), pytest.mark.native, pytest.mark.slow]
FEW_SLOTS = ("--ram", "15MiB", "--remote-experts", "on", "-t", "1", "--spec-type", "none")
LENT = (
    r"experts without a slot here are computed by rank (\d) on \S+: a request takes [\d.]+ ms.*;"
    r" RAM there has \d+ of \d+ experts in layers without a slot for each"
)


def lender(machines: Machines) -> Process:
    return machines.join(None, "--only-lend", "-t", "1")


def alone(machines: Machines, tokens: str) -> str:
    return ended(machines.start("run", str(machines.model), *PROMPT, "-n", tokens, "--no-log"))[1]


def test_the_text_is_that_of_one_machine_and_the_work_is_counted(
    machines: Machines, tmp_path: Path
) -> None:
    joined, path = lender(machines), tmp_path / "stats.txt"
    code, out, err = ended(
        machines.run(*PROMPT, "-n", "24", *FEW_SLOTS, "--expert-stats", str(path))
    )
    assert (code, out) == (0, alone(machines, "24")), err
    assert "rank 1 on" in err
    assert "runs no layers, and lends its RAM for experts" in err
    assert re.search(LENT, err)
    assert ended(joined)[0] == 0
    stats = read_stats(path)
    assert stats.asked is not None
    assert stats.total.remote >= stats.asked.questions > 0


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGSTOP])
def test_without_its_lender_a_machine_reads_from_the_disk(
    machines: Machines, way: signal.Signals
) -> None:
    joined, tokens = lender(machines), "250"
    running = machines.run(*PROMPT, "-n", tokens, "--ignore-eos", *FEW_SLOTS)
    assert running.stdout is not None
    assert running.stdout.read(1)  # it has begun to answer
    joined.send_signal(way)
    code, out, err = ended(running)
    assert code == 0, err
    assert re.search(r"rank 1 on \S+ is lost; its experts are read from the disk here", err)
    assert "Traceback" not in err
    whole = ended(machines.start("run", str(machines.model), *PROMPT, "-n", tokens,
                                 "--ignore-eos", "--no-log"))[1]  # fmt: skip
    assert whole.endswith(out[1:])
    assert len(out) > 100


def test_a_lender_beside_two_machines_with_layers(machines: Machines) -> None:
    joined = [machines.join(None, "--ram", "9MiB", "-t", "1"), lender(machines)]
    code, out, err = ended(machines.run(*PROMPT, "-n", "12", *FEW_SLOTS, others=2))
    others = [ended(process) for process in joined]
    assert (code, out) == (0, alone(machines, "12")), (err, others)
    assert [other[0] for other in others] == [0, 0]


def test_nobody_lends_what_nobody_wants(machines: Machines) -> None:
    joined = lender(machines)
    code, out, err = ended(machines.run(*PROMPT, "-n", "4", "--ram", "15MiB",
                                        "--remote-experts", "off"))  # fmt: skip
    assert (code, out) == (0, alone(machines, "4")), err
    assert "computed by" not in err
    assert ended(joined)[0] == 0
