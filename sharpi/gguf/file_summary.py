"""FileSummary: a description of a GGUF file as plain data, which `sharpi inspect` prints."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, to_builtins

from sharpi.gguf.file_kind import kind_of
from sharpi.gguf.header import is_routed
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile, Tensor
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


def summarise_tokenizer(metadata: Metadata) -> TokenizerSummary:
    """Returns a tokenizer's summary; raises ModelFileError, which names the invalid key."""
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


class TensorSummary(Struct, frozen=True):
    """The name, type, shape and size of one tensor of a file."""

    name: str
    quant_type: str
    shape: tuple[int, ...]  # slowest axis first
    num_bytes: int
    part: int  # index of the tensor's file


class QuantTypeSummary(Struct, frozen=True):
    """The number and size of all tensors of one quant type."""

    name: str
    num_tensors: int
    num_parameters: int
    num_bytes: int


def count_active(tensors: Iterable[Tensor], num_experts: int, num_used: int) -> int:
    """Returns the number of parameters that one token uses.

    A token uses `num_used / num_experts` of the routed experts' parameters, and all other
    parameters.
    """
    total = 0
    for tensor in tensors:
        routed = num_experts > 0 and is_routed(tensor.name)
        total += tensor.num_values * num_used // num_experts if routed else tensor.num_values
    return total


def summarise_quant_types(tensors: Iterable[Tensor]) -> tuple[QuantTypeSummary, ...]:
    """Returns one summary per quant type, the type with the most bytes first."""
    by_type: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        by_type.setdefault(tensor.quant_type.name, []).append(tensor)
    summaries = (
        QuantTypeSummary(
            name,
            len(own),
            sum(each.num_values for each in own),
            sum(each.num_bytes for each in own),
        )
        for name, own in by_type.items()
    )
    return tuple(sorted(summaries, key=lambda each: -each.num_bytes))


class FileSummary(Struct, frozen=True):
    """A description of a GGUF file; a field is None if the file does not define it."""

    path: str
    parts: tuple[str, ...]
    version: int
    name: str | None
    architecture: str | None
    kind: str  # "model", or what the file is instead
    license: str | None
    file_bytes: int  # the size of all parts on disk
    tensor_bytes: int  # the size of all weights
    num_tensors: int
    num_parameters: int  # every stored value counted once
    # Parameters that one token uses, including the whole token embedding.
    num_active_parameters: int
    bits_per_weight: float | None  # 8 * tensor_bytes / num_parameters
    num_layers: int | None
    num_experts: int | None
    num_experts_per_token: int | None
    context_length: int | None
    hidden_size: int | None
    num_heads: int | tuple[int, ...] | None  # a tuple if layers differ
    num_kv_heads: int | tuple[int, ...] | None  # a tuple if layers differ
    quant_types: tuple[QuantTypeSummary, ...]
    tokenizer: TokenizerSummary
    tensors: tuple[TensorSummary, ...]

    def to_dict(self, *, tensors: bool = False) -> dict[str, Any]:
        """Returns the summary as a dictionary for JSON, without the list of tensors by default."""
        values: dict[str, Any] = to_builtins(self)
        if not tensors:
            del values["tensors"]
        return values


def summarise(file: GgufFile) -> FileSummary:
    """Returns the summary of an open file; raises ModelFileError, which names the invalid key."""
    keys = _Keys(file.metadata)
    experts, experts_used = keys.count("expert_count"), keys.count("expert_used_count")
    tensors = list(file.tensors.values())
    num_parameters = sum(tensor.num_values for tensor in tensors)
    tensor_bytes = sum(tensor.num_bytes for tensor in tensors)
    return FileSummary(
        path=str(file.path),
        parts=tuple(str(part) for part in file.parts),
        version=file.version,
        name=file.metadata.find_printable("general.name"),
        architecture=file.metadata.find_printable("general.architecture"),
        kind=kind_of(file),
        license=file.metadata.find_printable("general.license"),
        file_bytes=file.num_bytes,
        tensor_bytes=tensor_bytes,
        num_tensors=len(tensors),
        num_parameters=num_parameters,
        num_active_parameters=count_active(tensors, experts or 0, experts_used or 0),
        bits_per_weight=8 * tensor_bytes / num_parameters if num_parameters else None,
        num_layers=keys.count("block_count"),
        num_experts=experts,
        num_experts_per_token=experts_used,
        context_length=keys.count("context_length"),
        hidden_size=keys.count("embedding_length"),
        num_heads=keys.per_layer("attention.head_count"),
        num_kv_heads=keys.per_layer("attention.head_count_kv"),
        quant_types=summarise_quant_types(tensors),
        tokenizer=summarise_tokenizer(file.metadata),
        tensors=tuple(
            TensorSummary(each.name, each.quant_type.name, each.shape, each.num_bytes, each.part)
            for each in tensors
        ),
    )


class _Keys:
    """Reads the metadata keys with the architecture's prefix; a missing key gives None."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._prefix = metadata.get_str("general.architecture", "")

    def count(self, name: str) -> int | None:
        key = f"{self._prefix}.{name}"
        return self._metadata.get_int(key, minimum=0) if key in self._metadata else None

    def per_layer(self, name: str) -> int | tuple[int, ...] | None:
        key = f"{self._prefix}.{name}"
        if key not in self._metadata:
            return None
        values = self._metadata.get_ints(key)
        return values[0] if len(set(values)) == 1 else tuple(values)
