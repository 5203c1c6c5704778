"""`sharpi log`: lists, searches, exports and removes logged conversations."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sharpi.cli.inputs import JsonOption
from sharpi.cli.output.terminal import fitted, print_stderr, strip_controls
from sharpi.errors import SharpiError, UsageError
from sharpi.settings.option import Option, local_option
from sharpi.units import format_time, plural

if TYPE_CHECKING:
    from sharpi.cli.log.log_store import KeptConversation, LogStore

_TITLE_WIDTH = 46
_LEAST_AROUND = 6  # characters shown on each side of a match, at least

Action = Literal["list", "show", "search", "export", "rm", "on", "off"]


def log(
    action: Annotated[
        Action, Option("ACTION", "list, show [ID], search TEXT, export [ID...], rm ID..., on, off.")
    ] = "list",
    values: Annotated[
        list[str] | None, Option("VALUE", "The ids of conversations, or the text to search.")
    ] = None,
    number: Annotated[
        int | None, local_option("-n --number N", "List at most N conversations.", min=1)
    ] = None,
    everything: Annotated[
        bool, local_option("--all", "With rm: remove all conversations.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List, show, search, export and remove kept conversations.

    Every chat and run is kept in one file under XDG_STATE_HOME, which only you can read. `sharpi
    chat --continue` goes on with the latest. `sharpi log off` keeps none from then on; --no-log
    keeps a single chat or run out of the file.
    """
    if action in ("on", "off"):
        _switch(on=action == "on")
        return
    from sharpi.cli.log.conversation_log import open_log

    with open_log() as store:
        match action:
            case "list":
                _print_list(store.listed(number or -1), as_json)
            case "show":
                _show(_one(store, values), as_json)
            case "search":
                _search(store, " ".join(values or ()), as_json)
            case "export":
                _export(store, values)
            case _:
                _remove(store, values, everything)


def _switch(*, on: bool) -> None:
    from sharpi.cli.log import log_store

    try:
        log_store.switch(on=on)
    except OSError as error:
        raise SharpiError(f"cannot switch the log: {error.strerror or error}") from error
    print_stderr(
        f"Conversations are {'kept' if on else 'not kept any more'}: {log_store.log_path()}"
    )


def _print_list(conversations: "Sequence[KeptConversation]", as_json: bool) -> None:
    if as_json:
        print(json.dumps([_record(each) for each in conversations], ensure_ascii=False))
        return
    if not conversations:
        print_stderr("The log is empty.")
    for each in conversations:
        _print_row(each, _shortened(each.title))


def _print_row(kept: "KeptConversation", text: str) -> None:
    print(f"{kept.id:>5}  {format_time(kept.updated)}  {kept.kind:4}  {text}")


def _one(store: "LogStore", values: list[str] | None) -> "KeptConversation":
    """Returns the conversation with the id `values[0]`, or the latest one without values."""
    if values:
        return store.find(_ids(values[:1])[0])
    latest = store.listed(1)
    if not latest:
        raise UsageError("the log is empty")
    return store.find(latest[0].id)


def _show(kept: "KeptConversation", as_json: bool) -> None:
    if as_json:
        print(json.dumps(_record(kept), ensure_ascii=False))
        return
    print(f"{kept.id}  {format_time(kept.started)}  {kept.kind}  {Path(kept.model).name}")
    for message in kept.messages:
        content = message["content"].rstrip()
        shown = fitted(strip_controls(content), sys.stdout) if sys.stdout.isatty() else content
        print(f"\n[{message['role']}]\n{shown}")


def _search(store: "LogStore", text: str, as_json: bool) -> None:
    if not text:
        raise UsageError("search needs a text: sharpi log search TEXT")
    found = store.search(text)
    if as_json:
        print(json.dumps([_record(each) for each, _ in found], ensure_ascii=False))
        return
    if not found:
        raise SharpiError(f"no conversation has {text!r}")
    for kept, content in found:
        _print_row(kept, _excerpt(content, text))


def _export(store: "LogStore", values: list[str] | None) -> None:
    """Prints conversations as JSON: one object, which /load reads, for a single id, else a list."""
    ids = _ids(values) if values else [each.id for each in reversed(store.listed())]
    records = [_record(store.find(number)) for number in ids]
    is_one = values is not None and len(records) == 1
    json.dump(records[0] if is_one else records, sys.stdout, ensure_ascii=False, indent=2)
    print()


def _remove(store: "LogStore", values: list[str] | None, everything: bool) -> None:
    if everything == bool(values):
        raise UsageError("rm needs the ids of conversations, or --all")
    ids = [each.id for each in store.listed()] if everything else _ids(values or [])
    count = store.remove([store.find(number).id for number in ids])  # none if one is missing
    print_stderr(f"Removed {plural(count, 'conversation')}.")


def _ids(values: Sequence[str]) -> list[int]:
    for value in values:
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise UsageError(f"{value!r} is not the id of a conversation; `sharpi log` lists them")
    return [int(value) for value in values]


def _record(kept: "KeptConversation") -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": kept.id,
        "kind": kept.kind,
        "model": kept.model,
        "started": _iso(kept.started),
        "updated": _iso(kept.updated),
        "num_messages": kept.num_messages,
        "title": kept.title,
    }
    return record | ({"messages": list(kept.messages)} if kept.messages else {})


def _excerpt(content: str, text: str) -> str:
    at = max(0, content.lower().find(text.lower()))
    around = max(_LEAST_AROUND, (_TITLE_WIDTH - 6 - len(text)) // 2)
    begin, end = max(0, at - around), at + len(text) + around
    excerpt = strip_controls(" ".join(content[begin:end].split()))
    return "..." * (begin > 0) + excerpt + "..." * (end < len(content))


def _shortened(title: str) -> str:
    line = strip_controls(" ".join(title.split()))
    return line if len(line) <= _TITLE_WIDTH else line[: _TITLE_WIDTH - 3] + "..."


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
