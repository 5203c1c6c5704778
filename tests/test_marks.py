"""What `make quick` leaves out: the emulated GPU and processors, the page, and slow files."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEFT_OUT = (
    "tests/cuda",
    "tests/processors",
    "tests/kernels/test_neon_emulated.py",
    "tests/kernels/test_neon_steps.py",
    "tests/serve/page/test_page_chat.py",
    "tests/serve/page/test_page_experts.py",
    "tests/serve/page/test_page_markdown.py",
)
SLOW_FILES = re.findall(
    r'"(\S+/test_\w+\.py)"', (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
)
NOTHING_COLLECTED = 5  # pytest's exit status


def quick_selection() -> str:
    """The tests that `make quick` selects by their marks."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nquick:")[2]
    found = re.search(r"-m '([^']+)'", recipe)
    assert found
    return found[1]


def test_quick_leaves_out_what_takes_long() -> None:
    command = [
        *(sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"),
        *("-m", quick_selection(), *LEFT_OUT, *(f"tests/{name}" for name in SLOW_FILES)),
    ]
    assert len(SLOW_FILES) >= 10
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == NOTHING_COLLECTED, done.stdout[-2000:]
    assert re.search(r"\(\d{3,} deselected\)", done.stdout), done.stdout[-2000:]
