"""The diagrams of packages say what the code imports."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def code_block(document: str, beginning: str) -> str:
    text = (ROOT / document).read_text("utf-8")
    blocks = [block for block in text.split("```\n")[1::2] if block.startswith(beginning)]
    assert len(blocks) == 1
    return blocks[0]


def chains() -> Iterator[tuple[str, list[list[str]]]]:
    """Yields the package and the groups of each line with `>`, those that import first."""
    package = ""
    for line in code_block("docs/architecture.md", "cli  ").splitlines():
        name, _, rest = line.partition(" ")
        package = name or package
        inner, is_inner, after = rest.strip(" |").partition(":")
        rest = after if is_inner else rest
        groups = [re.findall(r"\w+", group) for group in rest.split(">")]
        if len(groups) > 1:
            yield f"{package}.{inner}" if is_inner else package, groups


def imports(package: str) -> set[tuple[str, str]]:
    """The pairs of parts of a package of which the first imports the second."""
    prefix = f"sharpi.{package}."
    found = set()
    for path in (ROOT / "sharpi" / package.replace(".", "/")).rglob("*.py"):
        own = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix(prefix)
        for module in imported_modules(path):
            if module.startswith(prefix):
                other = module.removeprefix(prefix)
                found.add((own.split(".")[0], other.split(".")[0]))
    return found


@cache
def imported_modules(path: Path) -> set[str]:
    """The modules from which a file imports names."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}


@pytest.mark.parametrize(("package", "groups"), list(chains()), ids=str)
def test_the_left_side_imports_the_right_side(package: str, groups: list[list[str]]) -> None:
    found = imports(package)
    for left, right in pairwise(groups):
        assert any((a, b) in found for a in left for b in right), f"{left} > {right}"
    for number, left in enumerate(groups):
        others = {name for group in groups[number:] for name in group}
        assert not {(b, a) for a in left for b in others if a != b} & found, left


def test_every_package_is_in_the_diagram() -> None:
    diagram = code_block("docs/architecture.md", "cli  ")
    folders = {
        path.parent.relative_to(ROOT / "sharpi") for path in ROOT.glob("sharpi/**/__init__.py")
    }
    names = {each.name for each in folders if 1 <= len(each.parts) <= 2}
    names |= {each.name for each in folders if each.parts[:2] == ("ops", "cuda")}
    assert len(names) > 40
    assert not names - set(re.findall(r"\w+", diagram))


def test_contributing_has_the_levels_of_the_linter() -> None:
    levels = re.search(r"layers =\n((?:    .+\n)+)", (ROOT / ".importlinter").read_text("utf-8"))
    assert levels
    stated = code_block("CONTRIBUTING.md", "cli\n")
    assert stated.split() == re.sub(r"sharpi\.|[()]", "", levels[1]).split()
