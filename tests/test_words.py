"""One word for one thing: private words that the field has better ones for do not come back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("sharpi", "kernels", "bench-scripts", "docs", "README.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".h", ".cpp", ".cu", ".cuh", ".js", ".html", ".md", ".sh", ".txt"}

# A part of an identifier or a word of a sentence, in lower case, and what to say instead. Words
# joined by a space follow each other, in an identifier as well.
BANNED = {
    "card": "GPU",
    "cards": "GPUs",
    "bank": "stacked matrix",
    "banks": "stacked matrices, or expert weights",
    "homes": "host copies",
    "foresee": "predict",
    "foresees": "predicts",
    "foresight": "route prediction",
    "guess": "predict, or prediction",
    "guesses": "predicts, or predictions",
    "guessed": "predicted",
    "guessing": "predicting",
    "lease": "acquire",
    "leases": "acquires",
    "leased": "acquired",
    "unlease": "release",
    "spares": "staging buffers",
    "spare buffer": "staging buffer",
    "late item": "host item",
    "late items": "host items",
    "lineup": "run queue",
    "companions": "per-model cache",
    "batch passage": "prefill expert access",
    "partial layers": "slotted layers",
    "half products": "f16 matmul",
    "half rows": "f16 rows",
    "kv way": "KV layout",
    "kv ways": "KV layouts",
    "trunk": "dense weights",
    "extent": "step shape",
    "extents": "step shapes",
    "chooser": "token sampler",
    "ticket": "request id",
    "tickets": "request ids",
    "neighbouring": "adjacent",
    "ledger": "tier budget",
    "heed": "handle, or obey",
    "way of misses": "miss mode",
    "ways of serving": "miss modes",
    "seat": "bind, or store in a slot",
    "unseat": "unbind",
    "verdict": "decision, or result",
    "formed": "constrained, or in a format",
    "neighbours": "adjacent ones, or those beside it",
    "patience": "budget of spins, or timeout",
    "end like an exception": "raise on SIGTERM",
    "meeting place": "rendezvous",
    "question line": "request channel",
    "asker": "client",
    "require sound": "raise if failed",
    "wish": "mode, or request",
    "spells": "periods",
    "stake": "limit",
    "hopeless": "unlikely, or far slower",
    "fruitless": "failed, or useless",
    "overdrawn": "exceeded",
    "steer": "adapt",
    "steered": "adapted",
    "giver": "source",
    "givers": "sources",
    "takers": "targets",
    "newcomer": "the one that is new, or promoted",
    "let go": "release",
    "habit": "capability, or style",
    "habits": "capabilities",
    "complain": "print an error",
    "complaint": "message",
    "knocking": "backlog",
    "reader left": "broken stdout",
    "written whole": "atomic",
    "linger": "extend a buffer's lifetime",
    "adopt": "register an array",
    "adopted": "registered",
    "stash room": "stash sizes",
    "shared room": "shared buffer",
    "passing parts": "batch matrices",
    "served misses": "batch miss mode",
    "asks router": "uses router",
    "tells host": "sends to the host",
    "slot following": "last-layer counts",
    "takes floats": "reads floats",
    "takes halves": "supports f16 matmul",
    "takes tiles": "supports tiles",
    "rounded dot": "int8 dot",
    "tile place": "tile position",
    "unit place": "unit layout",
    "send home": "restore host copies",
}

# Names that files and answers of sharpi have had from the beginning, and words of other trades.
ALLOWED = re.compile(
    r"""model\ card | the\ card\ of\ the\ model | recipe\ and\ its\ card
    | different\ banks               # of a GPU's shared memory
    | "card_(staging|pages|bytes)" | "trunk(_bytes)?"
    | ["`]guess(es|ed)["`] | \bguess(es|ed)(:\ int|=) | \.guess(es|ed)\b
    | \bnobody\ can\ guess | \bguessed\ at
    """,
    re.VERBOSE,
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_LONGEST = max(word.count(" ") + 1 for word in BANNED)
_FIRST_PARTS = {word.split()[0] for word in BANNED}


def banned_words(text: str) -> Iterator[tuple[int, str]]:
    """The line and the word of each that stands in `text`."""
    for number, line in enumerate(text.splitlines(), 1):
        parts = [part.lower() for part in _PART.findall(ALLOWED.sub("", line))]
        for first in (place for place, part in enumerate(parts) if part in _FIRST_PARTS):
            for count in range(1, _LONGEST + 1):
                word = " ".join(parts[first : first + count])
                if len(parts) - first >= count and word in BANNED:
                    yield number, word


def sources() -> Iterator[Path]:
    for place in PLACES:
        path = ROOT / place
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (each for each in found if each.suffix in SUFFIXES and each.is_file())


def test_the_words_of_the_field_are_used() -> None:
    """The glossary, docs/glossary.md, says what the words mean."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word!r}; say {BANNED[word]}"
        for path in sources()
        for number, word in [
            *banned_words(path.read_text(encoding="utf-8")),
            *banned_words(path.name),
        ]
    ]
    assert found == []


@pytest.mark.parametrize("word", BANNED)
def test_a_planted_word_is_found(word: str) -> None:
    """The word is planted in prose, a variable, a constant and a class."""
    parts = word.split()
    forms = (word, "_".join(parts), "_".join(parts).upper(), "".join(p.title() for p in parts))
    for form in forms:
        planted = f"def first() -> None: ...\n\n\nsome_{form} = 1  # of it\n"
        if form == form.title().replace(" ", ""):
            planted = f"def first() -> None: ...\n\n\nclass My{form}Thing: ...\n"
        assert (4, word) in set(banned_words(planted)), form


@pytest.mark.parametrize(
    "text",
    [
        "discard wildcards cardinality",
        "bankruptcy and embankments",
        "release the released",
        "the model card of the demo",
        "relate, calculate, template",
        'asked["guessed"]',
    ],
)
def test_other_words_are_left_alone(text: str) -> None:
    assert list(banned_words(text)) == []


def test_there_are_sources_to_read() -> None:
    assert len(list(sources())) > 500
