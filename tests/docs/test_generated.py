"""The tables of docs/ that come from the code are as `make docs` would write them."""

from pathlib import Path

import flag_tables
import generate
import pytest
from documents import PAGES, ROOT, name_of


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_table_is_stale(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text == generate.filled(text), "run `make docs`"


def test_every_table_has_its_place() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    for name in generate.TABLES:
        assert text.count(f"<!-- generated: {name} -->") == 1


def test_a_stale_table_is_made_anew() -> None:
    stale = "before\n<!-- generated: commands -->\n| a row of before |\n<!-- end -->\nafter\n"
    page = generate.filled(stale)
    assert page.startswith("before\n<!-- generated: commands -->\n| command | what it does |\n")
    assert "| `sharpi run [MODEL] [PROMPT]` |" in page
    assert page.endswith("|\n<!-- end -->\nafter\n")
    assert "a row of before" not in page


def test_rows_of_flags() -> None:
    flags = flag_tables.run_flags() + flag_tables.serve_flags()
    assert "| `-c`, `--ctx-size` N | `SHARPI_CTX_SIZE` | the model's, at most 4096 | " in flags
    assert "| `--load` auto, map, copy | `SHARPI_LOAD` | auto | " in flags
    assert "| `--context-shift`, `--no-context-shift` | `SHARPI_CONTEXT_SHIFT` | off | " in flags
    assert "| `-np`, `--parallel` N | `SHARPI_PARALLEL` | 4 | " in flags
    assert flags.count("| `--seed`") + flags.count("| `-s`, `--seed` N |") == 1


def test_rows_of_architectures() -> None:
    names = [line.split("`")[1] for line in generate.architectures().splitlines()[2:]]
    assert sorted(names) == sorted(path.stem for path in (ROOT / "models").glob("*.toml"))
