"""The documents' links and the files that they name exist, and the README is short."""

import re
from pathlib import Path

import pytest
from documents import DOCUMENTS, README, ROOT, name_of, prose

WRITTEN = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

_NAMED_PATH = re.compile(r"`((?:sharpi|kernels|tests|models|bench-scripts|docs)/[^`\s]*)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 110


@pytest.mark.parametrize("document", WRITTEN, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    targets = [each for each in _LINK.findall(prose(document)) if "://" not in each]
    assert not [each for each in targets if not _exists(document, each)]


def _exists(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    page = document.parent / path if path else document
    return page.exists() and (not anchor or anchor in _anchors(page))


def _anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub makes from the headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("document", WRITTEN, ids=name_of)
def test_named_files_exist(document: Path) -> None:
    named = {re.sub("<[^>]+>", "*", each) for each in _NAMED_PATH.findall(prose(document))}
    assert not [each for each in named if not any(ROOT.glob(each))]
