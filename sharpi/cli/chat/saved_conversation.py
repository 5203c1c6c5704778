"""Reads a conversation from a file that `/save` wrote."""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from sharpi.cli.log.kept import Message
from sharpi.errors import UsageError
from sharpi.system.files import read_bounded

_ROLES = ("system", "user", "assistant")


class SavedConversation(Struct, frozen=True):
    """A file's messages, and the path of the model that answered them, if known."""

    messages: tuple[Message, ...]
    model: str | None


def read_saved(path: Path) -> SavedConversation:
    """Reads a saved conversation; raises UsageError for any other file."""
    try:
        record = json.loads(read_bounded(path).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved conversation: {error}") from error
    messages = _checked_messages(record, path)
    model = record.get("model")
    return SavedConversation(messages, model if isinstance(model, str) else None)


def _checked_messages(record: Any, path: Path) -> tuple[Message, ...]:
    messages = record.get("messages") if isinstance(record, dict) else None
    if not isinstance(messages, list) or not all(map(_is_message, messages)):
        raise UsageError(f'{path} is not a saved conversation: no "messages" with role and content')
    return tuple({"role": each["role"], "content": each["content"]} for each in messages)


def _is_message(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.get("role") in _ROLES
        and isinstance(item.get("content"), str)
    )
