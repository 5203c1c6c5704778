"""Finds the conversation that a chat continues: in the log, or in a file that `/save` wrote."""

from pathlib import Path

from msgspec import Struct

from sharpi.cli.chat.saved_conversation import read_saved
from sharpi.cli.log.conversation_log import kept_conversation
from sharpi.cli.log.kept import KeptConversation, Message
from sharpi.errors import UsageError


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
    saved = read_saved(path)
    model = Path(saved.model) if saved.model and Path(saved.model).exists() else None
    return Resumed(saved.messages, model, name)
