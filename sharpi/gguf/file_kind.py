"""Distinguishes language models from other GGUF files, such as adapters and image projectors.

`general.type` names the kind. In older files without it, the architecture or certain keys do.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from sharpi.errors import SharpiError, UnsupportedModelError
from sharpi.gguf.cursor import printable
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile, open_gguf

MODEL = "model"
HEAD = "head"

_CHANGES = "it changes a model and cannot answer by itself; name the model"
# What each kind other than a model is, and what to do with it.
_KINDS = {
    "mmproj": ("an image projector (mmproj)", "name the language model that it belongs to"),
    "adapter": ("a LoRA adapter", _CHANGES),
    "imatrix": ("an importance matrix (imatrix)", "programs that quantise read it; name the model"),
    "controlvector": ("a control vector", _CHANGES),
    "embedding": ("an embedding model", "it cannot write text"),
    "vocabulary": (
        "a vocabulary without weights",
        "`sharpi tokenize` reads it; a model is needed to write text",
    ),
    HEAD: (
        "a head that drafts for a model (MTP), without the model",
        "name the model, and this file as --spec-draft-model",
    ),
}
_TYPES = ("mmproj", "adapter", "imatrix")  # values of general.type besides "model"
_EMBEDDERS = {
    *("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert"),
    *("modern-bert", "eurobert", "gemma-embedding", "t5encoder"),
}

_DRAFTERS = {"gemma4-assistant"}


def kind_of(file: GgufFile) -> str:
    """Returns MODEL for a language model, or the name of another kind, such as "adapter"."""
    metadata = file.metadata
    stored = _text(metadata, "general.type")
    architecture = _text(metadata, "general.architecture")
    if stored in _TYPES:
        return stored
    if architecture == "clip":
        return "mmproj"
    if architecture in ("imatrix", "controlvector"):
        return architecture
    if "adapter.type" in metadata:
        return "adapter"
    if architecture in _EMBEDDERS or _pools(metadata, architecture):
        return "embedding"
    if _is_head(file, architecture):
        return HEAD
    has_vocabulary = "tokenizer.ggml.tokens" in metadata
    return "vocabulary" if has_vocabulary and not file.tensors else MODEL


def description(kind: str) -> str:
    """Returns the words for a kind other than MODEL, such as "a LoRA adapter"."""
    return _KINDS[kind][0]


def may_be_model(path: Path) -> bool:
    """Returns whether a file is a language model.

    An unreadable file counts as one unless its name contains `mmproj`, so that opening it reports
    the error.
    """
    try:
        with open_gguf(path) as file:
            return kind_of(file) == MODEL
    except (SharpiError, OSError):
        return "mmproj" not in path.name.lower()


def require_model(file: GgufFile) -> None:
    """Raises UnsupportedModelError, which names the file's kind, if it is not a language model."""
    kind = kind_of(file)
    if kind == MODEL:
        return
    beside = ""
    if kind in ("mmproj", "adapter", HEAD) and (names := list(_others(file.path))):
        beside = f"; beside it: {', '.join(names)}"
    what, advice = _KINDS[kind]
    message = f"{file.path}: this is {what}, not a language model; {advice}{beside}"
    raise UnsupportedModelError(printable(message))


def _is_head(file: GgufFile, architecture: str) -> bool:
    """Returns whether the file has layers for multi-token prediction (MTP) but no other layers."""
    if architecture in _DRAFTERS:
        return True
    count = file.metadata.get(f"{architecture}.nextn_predict_layers")
    has_some = isinstance(count, int) and count > 0 and any(".nextn." in x for x in file.tensors)
    return has_some and not any(name.startswith("blk.0.") for name in file.tensors)


def _text(metadata: Metadata, key: str) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""


def _pools(metadata: Metadata, architecture: str) -> bool:
    """Returns whether the model pools its tokens into one vector, as only embedding models do."""
    value = metadata.get(f"{architecture}.pooling_type")
    return isinstance(value, int) and value > 0


def _others(path: Path, most: int = 3) -> Iterator[str]:
    """Yields the names of at most `most` GGUF files beside `path` that may be language models."""
    beside = sorted(each for each in path.parent.glob("*.gguf") if each.name != path.name)
    yield from islice((each.name for each in beside if may_be_model(each)), most)
