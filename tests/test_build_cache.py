"""What tests compile is built once, however many processes want it."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from build_cache import built, digest

TESTS = Path(__file__).parent
PROGRAM = """
import sys, time
from pathlib import Path
from build_cache import built

def build(path):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    time.sleep(0.2)
    path.write_text("whole")

print(built(Path(sys.argv[1]), build).read_text())
"""


def test_one_of_several_processes_builds(tmp_path: Path) -> None:
    target, log = tmp_path / "target", tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM, str(target), str(log)]
    with ThreadPoolExecutor(3) as pool:
        started = [
            pool.submit(subprocess.check_output, command, cwd=TESTS, text=True) for _ in range(3)
        ]
    assert [each.result() for each in started] == ["whole\n"] * 3
    assert log.read_text() == "built\n"


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def broken(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("the compiler refused")

    with pytest.raises(RuntimeError, match="refused"):
        built(target, broken)
    assert not target.exists()
    assert built(target, lambda path: path.write_text("whole")).read_text() == "whole"


def test_names_change_with_each_part() -> None:
    assert len({digest("a", "b"), digest("ab"), digest("a", "c"), digest("a", "b", "")}) == 4
