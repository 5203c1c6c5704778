"""The levels of packages that the documents show are those that the linter holds."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def levels() -> list[str]:
    """Returns the linter's levels, from the top, each as it stands there."""
    found = re.search(r"layers =\n((?:    .+\n)+)", (ROOT / ".importlinter").read_text("utf-8"))
    assert found
    return re.sub(r"sharpi\.|[()]", "", found[1]).split()


def test_the_architecture_has_the_levels_of_the_linter() -> None:
    blocks = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("```\n")[1::2]
    [stated] = [block for block in blocks if block.startswith("cli\n")]
    assert stated.split() == levels()


def test_the_architecture_says_what_each_package_owns() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    folders = {path.parent.name for path in ROOT.glob("sharpi/*/__init__.py")}
    assert len(folders) > 10
    assert not {name for name in folders if f"`{name}/`" not in page}
