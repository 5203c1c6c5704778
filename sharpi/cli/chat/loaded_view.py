"""Shows the end of a conversation that was loaded, so that the user knows where it goes on."""

from collections.abc import Sequence

from sharpi.cli.output.terminal import harmless, say

_MOST_MESSAGES = 6
_MOST_LINES = 6  # of one message
_MARKS = {"user": "> ", "system": "system: ", "assistant": ""}


def show_messages(messages: Sequence[dict[str, str]]) -> None:
    """Prints the last messages to stderr, long ones without their end."""
    hidden = len(messages) - _MOST_MESSAGES
    if hidden > 0:
        say(f"... {hidden} earlier message{'' if hidden == 1 else 's'}")
    for message in messages[-_MOST_MESSAGES:]:
        lines = harmless(message["content"]).strip("\n").split("\n")
        say(_MARKS[message["role"]] + "\n".join(lines[:_MOST_LINES]))
        more = len(lines) - _MOST_LINES
        if more > 0:
            say(f"... {more} more line{'' if more == 1 else 's'}")
