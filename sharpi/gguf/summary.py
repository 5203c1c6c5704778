"""FileSummary: a description of a GGUF file as plain data, which `sharpi inspect` prints."""

from typing import Any

from msgspec import Struct, to_builtins

from sharpi.gguf.file_kind import kind_of
from sharpi.gguf.metadata import Metadata
from sharpi.gguf.reader import GgufFile
from sharpi.gguf.tensor_summary import (
    QuantTypeSummary,
    TensorSummary,
    count_active,
    summarise_quant_types,
    summarise_tensor,
)
from sharpi.gguf.tokenizer_summary import TokenizerSummary, summarise_tokenizer


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
    """Returns the summary of an open file.

    Raises ModelFileError, which names the key, for an invalid metadata value.
    """
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
        tensors=tuple(summarise_tensor(tensor) for tensor in tensors),
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
