"""`sharpi inspect`: the content of a GGUF file as text or JSON, without loading it."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from sharpi.cli.options.inputs.model_path import model_path
from sharpi.cli.options.json_output import JsonOption
from sharpi.cli.options.option import argument, local_option
from sharpi.cli.output.terminal import fitted
from sharpi.units import format_bytes, format_count

if TYPE_CHECKING:
    from sharpi.gguf.summary import FileSummary

_INDENT = 15  # the column of the texts
Row = tuple[str, str]  # a heading and its text


def inspect(
    model: Annotated[str, argument("MODEL", "A GGUF file, one of its parts, or a name.")],
    tensors: Annotated[bool, local_option("--tensors", "Also list every tensor.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a GGUF file holds.

    Architecture, sizes, all parameters and those active per token, experts, quant types, context,
    tokenizer and chat template. This also works for files that sharpi cannot run.
    """
    from sharpi.gguf.reader import open_gguf
    from sharpi.gguf.summary import summarise

    with open_gguf(model_path(model)) as file:
        summary = summarise(file)
    if as_json:
        print(json.dumps(summary.to_dict(tensors=tensors), ensure_ascii=False))
        return
    for heading, text in _rows(summary):
        print(fitted(f"{heading:{_INDENT}}{text}".rstrip(), sys.stdout, _INDENT))
    if tensors:
        print()
        print(_table(_tensor_lines(summary)))


def _rows(summary: "FileSummary") -> Iterator[Row]:
    from sharpi.gguf.file_kind import MODEL, description

    yield from _file_rows(summary)
    if summary.kind != MODEL:
        yield "kind", f"{description(summary.kind)}, not a language model"
    yield "architecture", _architecture(summary)
    yield "parameters", format_count(summary.num_parameters)
    if summary.num_experts:
        active = format_count(summary.num_active_parameters)
        yield "", f"{active} of them active per token"
        yield "experts", f"{summary.num_experts}, {summary.num_experts_per_token} per token"
    yield from _weight_rows(summary)
    yield "context", f"{_known(summary.context_length)} tokens"
    yield from _tokenizer_rows(summary)


def _file_rows(summary: "FileSummary") -> Iterator[Row]:
    parts = f" in {len(summary.parts)} parts" if len(summary.parts) > 1 else ""
    size = format_bytes(summary.file_bytes)
    yield "file", f"{summary.path} ({size}{parts}, GGUF v{summary.version})"
    for heading, text in (("name", summary.name), ("license", summary.license)):
        if text is not None:
            yield heading, text


def _architecture(summary: "FileSummary") -> str:
    from sharpi.gguf.file_kind import MODEL

    if summary.kind != MODEL and summary.num_layers is None:
        return _known(summary.architecture)
    heads, kv_heads = _per_layer(summary.num_heads), _per_layer(summary.num_kv_heads)
    return (
        f"{_known(summary.architecture)}, {_known(summary.num_layers)} layers,"
        f" hidden size {_known(summary.hidden_size)}, {heads} heads, {kv_heads} KV heads"
    )


def _weight_rows(summary: "FileSummary") -> Iterator[Row]:
    bits = summary.bits_per_weight
    density = f", {bits:.2f} bits per weight" if bits is not None else ""
    yield (
        "weights",
        f"{format_bytes(summary.tensor_bytes)} in {summary.num_tensors} tensors{density}",
    )
    lines = [
        (
            each.name,
            format_bytes(each.num_bytes),
            f"{each.num_tensors} tensors",
            format_count(each.num_parameters),
        )
        for each in summary.quant_types
    ]
    for line in _table(lines).splitlines():
        yield "", line


def _tokenizer_rows(summary: "FileSummary") -> Iterator[Row]:
    tokenizer = summary.tokenizer
    pre = f" ({tokenizer.pre})" if tokenizer.pre else ""
    special = "".join(f", {role} {token}" for role, token in tokenizer.special_ids.items())
    yield (
        "tokenizer",
        f"{_known(tokenizer.model)}{pre}, {_known(tokenizer.vocab_size)} tokens{special}",
    )
    length = tokenizer.chat_template_length
    others = "".join(f", also {name}" for name in tokenizer.other_templates)
    yield "chat template", (f"{length} characters" if length else "none") + others


def _tensor_lines(summary: "FileSummary") -> list[tuple[str, ...]]:
    return [
        (
            tensor.name,
            tensor.quant_type,
            " x ".join(map(str, tensor.shape)) or "scalar",
            format_bytes(tensor.num_bytes),
            f"part {tensor.part + 1}" if len(summary.parts) > 1 else "",
        )
        for tensor in summary.tensors
    ]


def _table(lines: Sequence[Sequence[str]]) -> str:
    """Returns the lines as text in left-aligned columns, with two spaces between them."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(rows)


def _known(value: str | int | None) -> str:
    return "unknown" if value is None else str(value)


def _per_layer(value: int | tuple[int, ...] | None) -> str:
    """Returns a number as text, or the range such as `4 to 8` if it differs between layers."""
    return f"{min(value)} to {max(value)}" if isinstance(value, tuple) else _known(value)
