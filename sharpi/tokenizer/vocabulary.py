"""The vocabulary as a GGUF file stores it: tokens, their kinds, merges or scores, special ids."""

from dataclasses import dataclass
from enum import IntEnum

from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.metadata import Metadata

_PREFIX = "tokenizer.ggml"
SUPPORTED_MODELS = ("gpt2", "llama", "no_vocab")


class TokenKind(IntEnum):
    """Values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token texts in the file's order; `merges` of gpt2 as "left right", `scores` of llama."""

    model: str
    pre_tokenizer: str | None
    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    scores: list[float]
    special_ids: dict[str, int]
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None
    chat_template: str | None

    def id_of(self, role: str) -> int | None:
        """The id of "bos", "eos", "eot", "eom", "unknown" or "padding", if the file names one."""
        return self.special_ids.get(role)


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """The file's vocabulary; raises UnsupportedModelError for a kind that is not known."""
    model = metadata.get_str(f"{_PREFIX}.model", "no_vocab")
    if model not in SUPPORTED_MODELS:
        known = ", ".join(SUPPORTED_MODELS)
        raise UnsupportedModelError(f"tokenizer {model!r} is not supported; sharpi has {known}")
    tokens = [] if model == "no_vocab" else metadata.get_strings(f"{_PREFIX}.tokens")
    return Vocabulary(
        model=model,
        pre_tokenizer=metadata.get_str(f"{_PREFIX}.pre", "") or None,
        tokens=tokens,
        kinds=_kinds(metadata, len(tokens)),
        merges=_strings(metadata, "merges"),
        scores=_scores(metadata, model, len(tokens)),
        special_ids=_special_ids(metadata, len(tokens)),
        add_bos=_optional_bool(metadata, "add_bos_token"),
        add_eos=_optional_bool(metadata, "add_eos_token"),
        add_space_prefix=_optional_bool(metadata, "add_space_prefix"),
        chat_template=metadata.get_str("tokenizer.chat_template", "") or None,
    )


def _strings(metadata: Metadata, name: str) -> list[str]:
    key = f"{_PREFIX}.{name}"
    return metadata.get_strings(key) if key in metadata else []


def _optional_bool(metadata: Metadata, name: str) -> bool | None:
    key = f"{_PREFIX}.{name}"
    return metadata.get_bool(key) if key in metadata else None


def _checked_length(key: str, have: int, want: int) -> None:
    if have != want:
        raise ModelFileError(f"{key} has {have} entries for {want} tokens")


def _kinds(metadata: Metadata, count: int) -> list[int]:
    key = f"{_PREFIX}.token_type"
    if key not in metadata:
        return [TokenKind.NORMAL] * count
    kinds = [int(kind) for kind in metadata.get_array(key)]
    _checked_length(key, len(kinds), count)
    return kinds


def _scores(metadata: Metadata, model: str, count: int) -> list[float]:
    if model != "llama":
        return []
    key = f"{_PREFIX}.scores"
    scores = [float(score) for score in metadata.get_array(key)]
    _checked_length(key, len(scores), count)
    return scores


def _special_ids(metadata: Metadata, count: int) -> dict[str, int]:
    """Ids by role; an id outside the vocabulary means that there is none."""
    ids = {}
    for role in ("bos", "eos", "eot", "eom", "unknown", "padding"):
        key = f"{_PREFIX}.{role}_token_id"
        if key in metadata and 0 <= metadata.get_int(key) < count:
            ids[role] = metadata.get_int(key)
    return ids
