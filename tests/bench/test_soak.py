"""The soak of a server: its failing reads, and what it finds wrong at the end."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from serve.soak import fault_library, wrong_at_the_end

READS = """
import os, sys
file, failed = os.open(sys.argv[1], os.O_RDONLY), 0
for at in range(4000):
    try:
        assert len(os.pread(file, 4096, 0)) == 4096
    except OSError:
        failed += 1
print(failed)
"""
HELD = {"descriptors": 12, "threads": 29, "resident": 100 << 20}
COUNTS = {
    "sharpi_answers_running": 0,
    "sharpi_answers_waiting": 0,
    "sharpi_kv_pages_in_use": 0,
    "sharpi_expert_hits_total": 7,
    "sharpi_expert_misses_total": 3,
    "sharpi_expert_lookups_total": 10,
}


def test_reads_fail_now_and_then_while_the_file_is_there(tmp_path: Path) -> None:
    faults = tmp_path / "on"
    (tmp_path / "data").write_bytes(bytes(4096))
    asked = {"LD_PRELOAD": str(fault_library(tmp_path)), "SOAK_FAULTS": str(faults)}

    def failed() -> int:
        command = (sys.executable, "-S", "-c", READS, str(tmp_path / "data"))
        return int(subprocess.check_output(command, env=os.environ | asked))

    assert failed() == 0
    faults.touch()
    assert 1 <= failed() <= 100


@pytest.mark.parametrize(
    ("held", "counts", "words"),
    [
        ({}, {}, []),
        ({"resident": 109 << 20, "threads": 33}, {}, []),
        ({"resident": 112 << 20, "descriptors": 20}, {}, ["descriptors: 12, later 20", "resident"]),
        ({}, {"sharpi_kv_pages_in_use": 2}, ["kv_pages_in_use is 2"]),
        ({}, {"sharpi_expert_hits_total": 8}, ["hits and misses are not the lookups"]),
    ],
)
def test_what_is_kept_or_does_not_add_up_is_found(
    held: dict[str, int],
    counts: dict[str, int],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = SimpleNamespace(holdings=lambda: HELD | held, counts=lambda: COUNTS | counts)
    found = list(wrong_at_the_end(server, HELD))  # type: ignore[arg-type]
    assert len(found) == len(words)
    assert all(line.startswith(word) for line, word in zip(found, words, strict=True))
