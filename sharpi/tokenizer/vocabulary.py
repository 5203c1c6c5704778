"""Vocabulary: the tokenizer data of a GGUF file, checked but not yet interpreted."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from msgspec import Struct, field

from sharpi.errors import ModelFileError, UnsupportedModelError
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.string_array import StringArray, Texts

_PREFIX = "tokenizer.ggml"
_TEMPLATE = "tokenizer.chat_template"
SUPPORTED_MODELS = ("gpt2", "llama", "gemma4", "no_vocab")
_WITH_MERGES = ("gpt2", "gemma4")
_MODEL_ALIASES = {"none": "no_vocab"}
# Key by role, in the GGUF specification's spelling; the older spelling of a role comes second.
_ID_KEYS = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unknown": ("unknown_token_id",),
    "padding": ("padding_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}
# The ids that a SentencePiece file means if it names none.
_LLAMA_IDS = {"unknown": 0, "bos": 1, "eos": 2}


class TokenKind(IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Vocabulary(Struct, frozen=True):
    """The tokens of a file, in order, with their merges, scores, roles and flags.

    A field is None or empty if the file lacks it.
    """

    model: str  # one of SUPPORTED_MODELS
    pre_tokenizer: str | None = None
    # Texts: GPT-2's byte characters or SentencePiece's pieces; surrogates stand for bytes that are
    # not UTF-8.
    tokens: Texts = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)  # the TokenKind of each token
    merges: Texts = field(default_factory=list)  # "left right" by rank (gpt2, gemma4)
    scores: list[float] = field(default_factory=list)  # the score of each token (llama)
    # Id by role ("bos", "eos", "eot" ...).
    special_ids: Mapping[str, int] = field(default_factory=dict)
    add_bos: bool | None = None
    add_space_prefix: bool | None = None
    chat_template: str | None = None
    # Chat templates by name ("tool_use" ...).
    other_templates: Mapping[str, str] = field(default_factory=dict)
    model_name: str = ""  # general.name of the file

    def id_of(self, role: str) -> int | None:
        """Returns the id of the token with a role such as "bos"; None if no token has the role."""
        return self.special_ids.get(role)


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Reads the vocabulary of a file; raises UnsupportedModelError for other models."""
    model = metadata.get_str(f"{_PREFIX}.model", "no_vocab")
    model = _MODEL_ALIASES.get(model, model)
    if model not in SUPPORTED_MODELS:
        known = ", ".join(SUPPORTED_MODELS)
        raise UnsupportedModelError(
            f"tokenizer model {model!r} is not supported; sharpi has {known}"
        )
    if model == "no_vocab":
        return Vocabulary(model, **_templates(metadata))
    tokens = _texts(metadata)
    return Vocabulary(
        model=model,
        pre_tokenizer=metadata.get_str(f"{_PREFIX}.pre", "") or None,
        tokens=tokens,
        kinds=_numbers(metadata, "token_type", len(tokens), default=int(TokenKind.NORMAL)),
        merges=_strings(metadata, "merges") if model in _WITH_MERGES else [],
        scores=_numbers(metadata, "scores", len(tokens), default=0.0) if model == "llama" else [],
        special_ids=_special_ids(metadata, model, len(tokens)),
        add_bos=_flag(metadata, "add_bos_token"),
        add_space_prefix=_flag(metadata, "add_space_prefix"),
        model_name=metadata.get_str("general.name", ""),
        **_templates(metadata),
    )


def _texts(metadata: Metadata) -> Texts:
    """Returns the token texts; an empty text becomes `[EMPTY_n]`, which no input should contain."""
    tokens = _strings(metadata, "tokens")
    if tokens.has_empty():
        return [text or f"[EMPTY_{index}]" for index, text in enumerate(tokens)]
    return tokens


def _strings(metadata: Metadata, name: str) -> StringArray:
    """Returns a copy of an array of strings, which stays valid when the file is closed."""
    return metadata.get_string_array(f"{_PREFIX}.{name}").copy()


def _numbers(metadata: Metadata, name: str, num_tokens: int, default: Any) -> list[Any]:
    """Returns a number per token, or defaults; raises ModelFileError for too few."""
    key = f"{_PREFIX}.{name}"
    if key not in metadata:
        return [default] * num_tokens
    numbers = metadata.get_array(key)
    if len(numbers) < num_tokens:
        raise ModelFileError(f"{key} has {len(numbers)} entries for {num_tokens} tokens")
    return list(numbers[:num_tokens].astype(type(default)).tolist())


def _special_ids(metadata: Metadata, model: str, num_tokens: int) -> dict[str, int]:
    """Returns token ids by role; an id outside the vocabulary counts as missing."""
    ids = dict(_LLAMA_IDS) if model == "llama" else {}
    for role, keys in _ID_KEYS.items():
        for key in reversed(keys):
            if (name := f"{_PREFIX}.{key}") in metadata:
                token_id = metadata.get_int(name)
                ids[role] = token_id if 0 <= token_id < num_tokens else ids.get(role, -1)
    return {role: token_id for role, token_id in ids.items() if 0 <= token_id < num_tokens}


def _flag(metadata: Metadata, name: str) -> bool | None:
    key = f"{_PREFIX}.{name}"
    return metadata.get_bool(key) if key in metadata else None


def _templates(metadata: Metadata) -> dict[str, Any]:
    """Returns the file's default and named chat templates, as fields of a Vocabulary."""
    prefix = f"{_TEMPLATE}."
    return {
        "chat_template": metadata.get_str(_TEMPLATE, "") or None,
        "other_templates": {
            key.removeprefix(prefix): metadata.get_str(key)
            for key in metadata
            if key.startswith(prefix)
        },
    }
