"""Finds the conversation that a chat continues, in the log or in a file, and shows its end."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sharpi.cli.log.conversation_log import kept_conversation
from sharpi.cli.log.log_store import KeptConversation, Message
from sharpi.cli.output.terminal import print_stderr, strip_controls
from sharpi.errors import UsageError
from sharpi.system.files import read_bounded
from sharpi.units import plural


class _Turn(Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    content: str


class _Saved(Struct, frozen=True):
    """What a file of a conversation must have; `model` is the path of the model that answered."""

    messages: tuple[_Turn, ...]
    model: Any = None


def read_saved(path: Path) -> tuple[tuple[Message, ...], Path | None]:
    """Reads messages and the model's path, None if it is gone; raises UsageError otherwise."""
    try:
        saved = msgspec.json.decode(read_bounded(path), type=_Saved)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved conversation: {error}") from error
    messages = tuple({"role": each.role, "content": each.content} for each in saved.messages)
    is_there = isinstance(saved.model, str) and Path(saved.model).exists()
    return messages, Path(saved.model) if is_there else None


_MOST_MESSAGES = 6
_MOST_LINES = 6  # lines shown of each message, at most
_MARKS = {"user": "> ", "system": "system: ", "assistant": ""}


def show_messages(messages: Sequence[dict[str, str]]) -> None:
    """Prints the last six messages to stderr, and shortens long ones."""
    hidden = len(messages) - _MOST_MESSAGES
    if hidden > 0:
        print_stderr(f"... {plural(hidden, 'earlier message')}")
    for message in messages[-_MOST_MESSAGES:]:
        lines = strip_controls(message["content"]).strip("\n").split("\n")
        print_stderr(_MARKS[message["role"]] + "\n".join(lines[:_MOST_LINES]))
        more = len(lines) - _MOST_LINES
        if more > 0:
            print_stderr(f"... {plural(more, 'more line')}")


class Resumed(Struct, frozen=True):
    """The messages that a chat continues; `kept` is their row of the log, None for a file."""

    messages: tuple[Message, ...]
    model: Path | None  # None if a file names no model, or one that no longer exists
    source: str
    kept: KeptConversation | None = None


def find_resumed(name: str | None) -> Resumed:
    """Returns the conversation with `name`: an id of the log, or else the path of a file.

    Without a name, returns the log's latest chat. Raises UsageError if the conversation does not
    exist.
    """
    if name is None or (name.isascii() and name.isdigit()):
        kept = kept_conversation(None if name is None else int(name))
        return Resumed(kept.messages, Path(kept.model), f"conversation {kept.id}", kept)
    path = Path(name).expanduser()
    if not path.exists():
        raise UsageError(
            f"there is no saved conversation {name}; --resume takes what /save wrote, or an id of"
            " `sharpi log`"
        )
    messages, model = read_saved(path)
    return Resumed(messages, model, name)
