"""Tables fit the terminal: texts wrap, columns are left out, and nothing is cut off."""

import os
import pty
import re
import subprocess
import sys

import pytest

from sharpi.cli.output.plan_table import ranges
from sharpi.cli.output.tables import Column, table_lines
from sharpi.resources import demo_model

COLUMNS = (
    Column("name", wraps_at=10),
    Column("size", is_right=True, rank=1),
    Column("hits", is_right=True),
    Column("why", rank=2, wraps_at=12),
    Column("pinned"),
)
ROWS = (
    ("one", "10.0 MiB", "5", "it is the first of all"),
    ("3, 5, 7, 9, 11", "1 B", "12"),
)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            100,
            [
                "name                size  hits  why",
                "one             10.0 MiB     5  it is the first of all",
                "3, 5, 7, 9, 11       1 B    12",
            ],
        ),
        (
            45,
            [
                "name            size  hits  why",
                "one         10.0 MiB     5  it is the first",
                "                            of all",
                "3, 5, 7,         1 B    12",
                "9, 11",
            ],
        ),
        (
            30,
            [
                "name                size  hits",
                "one             10.0 MiB     5",
                "3, 5, 7, 9, 11       1 B    12",
                "(a wider terminal shows why",
                "too)",
            ],
        ),
        (
            18,
            [
                "name          hits",
                "one              5",
                "3, 5, 7, 9,     12",
                "11",
                "(a wider terminal",
                "shows size, why",
                "too)",
            ],
        ),
    ],
)
def test_texts_wrap_and_columns_are_left_out(width: int, lines: list[str]) -> None:
    assert table_lines(COLUMNS, ROWS, width) == lines


def test_columns_without_a_rank_stay() -> None:
    assert "hits" in table_lines(COLUMNS, ROWS, 16)[0]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0, 1, 2, 3], "0-3"),
        ([0, 1, 2, 5], "0-2, 5"),
        ([3, 5, 7, 9], "3-9 by 2"),
        ([3, 7, 8], "3, 7-8"),
        ([4], "4"),
        ([4, 6], "4, 6"),
        ([], ""),
    ],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def on_terminal(columns: int, *arguments: str) -> list[str]:
    """Returns the lines that the program shows on a terminal of this width, without styles."""
    main, other = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SHARPI_")}
    with subprocess.Popen(
        [sys.executable, "-m", "sharpi", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=subprocess.DEVNULL,
        env=environment | {"COLUMNS": str(columns), "TERM": "xterm"},
    ) as program:
        os.close(other)
        text = b""
        try:
            while part := os.read(main, 1 << 16):
                text += part
        except OSError:  # the other end is closed
            pass
        os.close(main)
    assert program.returncode == 0
    return re.sub("\x1b\\[[0-9;]*m", "", text.decode()).splitlines()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The statistics and the trace of a run."""
    folder = tmp_path_factory.mktemp("records")
    stats, trace = str(folder / "s.txt"), str(folder / "t.npz")
    run = ["run", "-p", "Once", "-n", "20", "--ram", "14MiB"]
    run += ["--expert-stats", stats, "--moe-trace", trace]
    subprocess.run([sys.executable, "-m", "sharpi", *run], check=True, capture_output=True)
    return stats, trace


@pytest.mark.slow
@pytest.mark.native
def test_tables_on_a_terminal(records: tuple[str, str]) -> None:
    (stats, trace), columns = records, 60
    for command in (
        ["plan", "--ram", "14MiB"],
        ["stats", stats],
        ["simulate", trace, "--policy", "slru,learned-prefetch"],
    ):
        lines = on_terminal(columns, *command)
        too_long = [line for line in lines if len(line) > columns]
        assert all(str(demo_model()) in line for line in too_long)
        assert not any("…" in line for line in lines)
    plan = on_terminal(80, "plan", "--ram", "14MiB")
    first = next(i for i, line in enumerate(plan) if line.startswith("0-"))
    assert "3 of 16 in slots" in " ".join(plan[first].split()[-6:])
