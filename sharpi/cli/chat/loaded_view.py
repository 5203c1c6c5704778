"""Shows the end of a loaded conversation, so that the user knows where it continues."""

from collections.abc import Sequence

from sharpi.cli.output.terminal import print_stderr, strip_controls

_MOST_MESSAGES = 6
_MOST_LINES = 6  # lines shown of each message, at most
_MARKS = {"user": "> ", "system": "system: ", "assistant": ""}


def show_messages(messages: Sequence[dict[str, str]]) -> None:
    """Prints the last six messages to stderr, and shortens long ones."""
    hidden = len(messages) - _MOST_MESSAGES
    if hidden > 0:
        print_stderr(f"... {hidden} earlier message{'' if hidden == 1 else 's'}")
    for message in messages[-_MOST_MESSAGES:]:
        lines = strip_controls(message["content"]).strip("\n").split("\n")
        print_stderr(_MARKS[message["role"]] + "\n".join(lines[:_MOST_LINES]))
        more = len(lines) - _MOST_LINES
        if more > 0:
            print_stderr(f"... {more} more line{'' if more == 1 else 's'}")
