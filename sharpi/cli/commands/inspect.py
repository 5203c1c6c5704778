"""`sharpi inspect`: the content of a GGUF file as text or JSON, without loading it."""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharpi.cli.inputs import JsonOption
from sharpi.cli.model_path import model_path
from sharpi.cli.output.loading import ProgressBar
from sharpi.cli.output.terminal import fitted, print_note
from sharpi.errors import SharpiError
from sharpi.settings.option import Option, local_option
from sharpi.units import format_bytes, format_count

if TYPE_CHECKING:
    from sharpi.gguf.file_summary import FileSummary
    from sharpi.gguf.metadata import Metadata
    from sharpi.gguf.reader import GgufFile

_INDENT = 15  # the column of the texts
Row = tuple[str, str]  # a heading and its text


def inspect(
    model: Annotated[str, Option("MODEL", "A GGUF file, one of its parts, or a name.")],
    tensors: Annotated[bool, local_option("--tensors", "Also list every tensor.")] = False,
    check: Annotated[
        bool, local_option("--check", "Read every tensor and name the damaged ones.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a GGUF file holds.

    Architecture, sizes, all parameters and those active per token, experts, quant types, context,
    tokenizer and chat template. This also works for files that sharpi cannot run. With --check, the
    exit code is 1 if a tensor has NaN, infinities, zero scales or values out of range.
    """
    from sharpi.gguf.file_summary import summarise
    from sharpi.gguf.reader import open_gguf

    with open_gguf(model_path(model)) as file:
        if check:
            _check(file, as_json=as_json)
            return
        summary = summarise(file)
        standard = _standard_facts(file.metadata)
        template = [] if as_json else list(_template_rows(file.metadata))
    if as_json:
        record = summary.to_dict(tensors=tensors) | standard
        print(json.dumps(record, ensure_ascii=False))
        return
    for heading, text in (*_rows(summary, standard), *template):
        print(fitted(f"{heading:{_INDENT}}{text}".rstrip(), sys.stdout, _INDENT))
    if tensors:
        print()
        print(_table(_tensor_lines(summary)))


def _check(file: "GgufFile", *, as_json: bool) -> None:
    """Prints a line for each damaged tensor, or one that all are well; raises Typer's Exit."""
    from sharpi.cli.commands.tensor_check import check_tensors

    with ProgressBar() as bar:
        results = list(check_tensors(file, bar.show))
    damaged = [each for each in results if each.faults]
    unknown = Counter(each.type_name for each in results if not each.is_known)
    if as_json:
        faults = {each.name: each.faults for each in damaged}
        print(json.dumps({"damaged": faults, "unchecked": unknown}, ensure_ascii=False))
    for each in () if as_json else damaged:
        print(f"{each.name} ({each.type_name}): {'; '.join(each.faults)}")
    for name, count in unknown.items():
        print_note(f"{count} tensors of type {name} were not checked: gguf cannot read them")
    if damaged:
        raise typer.Exit(1)
    if not as_json:
        print(f"all is well: {len(results) - unknown.total()} tensors were read")


def _standard_facts(metadata: "Metadata") -> dict[str, Any]:
    """Returns what the gguf package says of a file: its type, and keys that it does not know."""
    from gguf import constants

    code = metadata.get("general.file_type")
    names = {int(each): each.name.removeprefix("MOSTLY_") for each in constants.LlamaFileType}
    name = names.get(code) if isinstance(code, int) else None
    architecture = metadata.get("general.architecture")
    known = [key.replace("{arch}", str(architecture)) for key in _keys(constants.Keys)]
    pattern = re.compile("|".join(re.sub(r"\\{\w+\\}", "[^.]+", re.escape(key)) for key in known))
    others = [key for key in metadata if not pattern.fullmatch(key)]
    return {"file_type": name, "other_keys": others}


def _keys(group: type) -> Iterator[str]:
    """Yields all keys of a class of the gguf package, and of the classes in it."""
    for name, value in vars(group).items():
        if isinstance(value, type):
            yield from _keys(value)
        elif isinstance(value, str) and not name.startswith("_"):
            yield value


def _rows(summary: "FileSummary", standard: dict[str, Any]) -> Iterator[Row]:
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
    if standard["file_type"]:
        yield "file type", standard["file_type"]
    yield "context", f"{_known(summary.context_length)} tokens"
    yield from _tokenizer_rows(summary)
    if standard["other_keys"]:
        yield "other keys", ", ".join(standard["other_keys"])


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


def _template_rows(metadata: "Metadata") -> Iterator[Row]:
    """Yields what the chat template holds; nothing without one, or if its tokenizer is unknown."""
    from sharpi.dialogue.dialogue_format import dialogue_format
    from sharpi.tokenizer.chat_template import chat_format
    from sharpi.tokenizer.tokenizer import load_tokenizer

    if not metadata.get("tokenizer.chat_template"):
        return
    with suppress(SharpiError):
        tokenizer = load_tokenizer(metadata)
        yield from dialogue_format(tokenizer, chat_format(tokenizer)).facts()


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
