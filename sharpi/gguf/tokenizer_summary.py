"""TokenizerSummary: a description of a file's tokenizer and chat template as plain data."""

from msgspec import Struct

from sharpi.gguf.metadata import Metadata
from sharpi.gguf.string_array import StringArray

_PREFIX = "tokenizer.ggml."
_ID_SUFFIX = "_token_id"
_TEMPLATE = "tokenizer.chat_template"


class TokenizerSummary(Struct, frozen=True):
    """A description of a file's tokenizer and chat template; a field is None if it is not set."""

    model: str | None  # "gpt2", "llama" ...
    pre: str | None  # the pre-tokenizer
    vocab_size: int | None
    special_ids: dict[str, int]  # token id by role: "bos", "eos", "eot" ...
    chat_template_length: int  # length in characters, 0 without a template
    other_templates: tuple[str, ...]  # names of further chat templates: "tool_use" ...

    @property
    def has_chat_template(self) -> bool:
        """True if the file has a default chat template."""
        return self.chat_template_length > 0


def summarise_tokenizer(metadata: Metadata) -> TokenizerSummary:
    """Returns the summary of a file's tokenizer.

    Raises ModelFileError, which names the key, for an invalid metadata value.
    """
    return TokenizerSummary(
        model=metadata.find_printable(f"{_PREFIX}model"),
        pre=metadata.find_printable(f"{_PREFIX}pre"),
        vocab_size=_vocab_size(metadata),
        special_ids={
            key.removeprefix(_PREFIX).removesuffix(_ID_SUFFIX): metadata.get_int(key)
            for key in metadata
            if key.startswith(_PREFIX) and key.endswith(_ID_SUFFIX)
        },
        chat_template_length=len(metadata.get_str(_TEMPLATE, "")),
        other_templates=tuple(
            key.removeprefix(f"{_TEMPLATE}.") for key in metadata if key.startswith(f"{_TEMPLATE}.")
        ),
    )


def _vocab_size(metadata: Metadata) -> int | None:
    tokens = metadata.get(f"{_PREFIX}tokens")
    if isinstance(tokens, StringArray):
        return len(tokens)
    key = f"{metadata.get_str('general.architecture', '')}.vocab_size"
    return metadata.get_int(key, minimum=0) if key in metadata else None
