"""The form of the documents: short, linked, and in sentences that can be read once."""

import re
from pathlib import Path

import pytest
from documents import DOCUMENTS, README, ROOT, name_of, prose

WRITTEN = [*DOCUMENTS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
MAX_COLUMNS = 100
MAX_WORDS = 30

_NAMED_PATH = re.compile(r"`((?:sharpi|kernels|tests|models|bench-scripts|docs)/[^`\s]*)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_readme_is_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 150


def test_contributing_is_one_page() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()) <= 80


@pytest.mark.parametrize("wanted", ["make run", "sharpi run", "sharpi serve", "times llama.cpp"])
def test_a_newcomer_finds_it_in_the_first_60_lines(wanted: str) -> None:
    beginning = README.read_text("utf-8").splitlines()[:60]
    assert wanted in " ".join(line.strip() for line in beginning)


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "images" / "page.png").stat().st_size < 300_000


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
def test_lines_are_wrapped(document: Path) -> None:
    lines = [line for line in prose(document).splitlines() if not line.startswith("|")]
    assert not [line for line in lines if len(line) > MAX_COLUMNS]


@pytest.mark.parametrize("document", WRITTEN, ids=name_of)
def test_sentences_are_short(document: Path) -> None:
    assert not [each for each in _sentences(document) if len(each.split()) > MAX_WORDS]


def _sentences(document: Path) -> list[str]:
    """Paragraphs and items of lists, cut behind full stops; tables and headings are none."""
    lines = [line for line in prose(document).splitlines() if not line.startswith(("|", "#"))]
    paragraphs = re.split(r"\n\s*\n|\n(?=\s*[-*] )", "\n".join(lines))
    found = [re.split(r"(?<=[.!?])[*)]*\s+", " ".join(each.split())) for each in paragraphs]
    return [sentence for paragraph in found for sentence in paragraph]


@pytest.mark.parametrize("document", WRITTEN, ids=name_of)
def test_named_files_exist(document: Path) -> None:
    named = {re.sub("<[^>]+>", "*", each) for each in _NAMED_PATH.findall(prose(document))}
    assert not [each for each in named if not any(ROOT.glob(each))]
