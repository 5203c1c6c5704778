"""The slash commands of a chat: their names, and their lines in /help."""

from msgspec import Struct

from sharpi.errors import UsageError, did_you_mean


class SlashCommand(Struct, frozen=True):
    """One slash command, with its usage and its purpose as /help prints them."""

    usage: str
    purpose: str

    @property
    def name(self) -> str:
        """The command without its arguments."""
        return self.usage.split()[0]


COMMANDS = (
    SlashCommand("/help", "show this help"),
    SlashCommand("/retry", "answer the last question again"),
    SlashCommand("/undo", "take the last question and its answer back"),
    SlashCommand("/edit", "take the last question back and change it"),
    SlashCommand("/reset", "clear the conversation, keep the system message"),
    SlashCommand("/save FILE", "write the conversation to FILE; -f replaces a file"),
    SlashCommand("/load FILE", "continue a saved conversation"),
    SlashCommand("/file FILE", "send the text of FILE along with the next question"),
    SlashCommand("/system TEXT", "set the system message; without TEXT show it"),
    SlashCommand("/set NAME VALUE", "change a setting, such as temp 0.2; without NAME show all"),
    SlashCommand("/model NAME", "go on with another model; without NAME show this one"),
    SlashCommand("/reasoning", "show the reasoning before the last answer"),
    SlashCommand("/stats", "show the context in use and the speed of the last answer"),
    SlashCommand("/experts", "show which experts were used, and their hits"),
    SlashCommand("/exit", "leave; so do /quit, /bye and Ctrl-D"),
)
NAMES = tuple(command.name for command in COMMANDS)
ALIASES = {"/?": "/help", "/quit": "/exit", "/bye": "/exit", "/clear": "/reset"}
ADVICE = (
    'A line that ends in \\ goes on in the next; """ opens and closes a block.',
    "Alt-Enter or Ctrl-J begins a new line, Ctrl-R searches, Tab completes.",
    "Two slashes ask a question that begins with one: //etc/hosts, what is in it?",
    "Ctrl-C stops an answer and keeps its text so far.",
)


def is_command(text: str) -> bool:
    """Returns whether a message is a command, rather than a question."""
    line = text.lstrip()
    return line.startswith("/") and not line.startswith("//")


def question_of(text: str) -> str:
    """Returns the question to ask; removes one of two leading slashes."""
    line = text.lstrip()
    return line[1:] if line.startswith("//") else text


def command_of(line: str) -> tuple[str, str]:
    """Splits a line into a command's full name and its arguments.

    Raises UsageError for an unknown command.
    """
    name, _, rest = line.strip().partition(" ")
    name = ALIASES.get(name, name)
    if name in NAMES:
        return name, rest.strip()
    other = "; /help lists them, and // asks what begins with a slash"
    raise UsageError(f"no command {name}{did_you_mean(name, [*NAMES, *ALIASES]) or other}")
