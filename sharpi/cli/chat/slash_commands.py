"""The commands of a chat, which begin with a slash: what each is for, and what it does."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sharpi.cli.chat.chat import Chat
from sharpi.cli.chat.chat_settings import INDENT
from sharpi.cli.chat.reply import reasoning_of, verbose_lines
from sharpi.cli.inputs import text_of_file
from sharpi.cli.log.conversation_log import read_saved, show_messages
from sharpi.cli.output.terminal import print_stderr, strip_controls
from sharpi.errors import UsageError, did_you_mean
from sharpi.units import plural

if TYPE_CHECKING:
    from sharpi.cli.chat.conversation import Conversation

COMMANDS = {  # each with its usage and its purpose
    "/help": "show this help",
    "/retry": "answer the last question again",
    "/undo": "take the last question and its answer back",
    "/edit": "take the last question back and change it",
    "/reset": "clear the conversation, keep the system message",
    "/save FILE": "write the conversation to FILE; -f replaces a file",
    "/load FILE": "continue a saved conversation",
    "/file FILE": "send the text of FILE along with the next question",
    "/system TEXT": "set the system message; without TEXT show it",
    "/set NAME VALUE": "change a setting, such as temp 0.2; without NAME show all",
    "/model NAME": "go on with another model; without NAME show this one",
    "/reasoning": "show the reasoning before the last answer",
    "/stats": "show the context in use and the speed of the last answer",
    "/experts": "show which experts were used, and their hits",
    "/exit": "leave; so do /quit, /bye and Ctrl-D",
}
NAMES = tuple(usage.split()[0] for usage in COMMANDS)
ALIASES = {"/?": "/help", "/quit": "/exit", "/bye": "/exit", "/clear": "/reset"}
ADVICE = (
    'A line that ends in \\ goes on in the next; """ opens and closes a block.',
    "Alt-Enter or Ctrl-J begins a new line, Ctrl-R searches, Tab completes.",
    "Two slashes ask a question that begins with one: //etc/hosts, what is in it?",
    "Ctrl-C stops an answer and keeps its text so far.",
)


def command_of(line: str) -> tuple[str, str]:
    """Splits a line into a command's full name and its arguments; raises UsageError."""
    name, _, rest = line.strip().partition(" ")
    name = ALIASES.get(name, name)
    if name in NAMES:
        return name, rest.strip()
    other = "; /help lists them, and // asks what begins with a slash"
    raise UsageError(f"no command {name}{did_you_mean(name, [*NAMES, *ALIASES]) or other}")


_NOT_COUNTED = "No experts were counted: there are none, or all fit and --expert-stats is not set."
_REPLACE = "-f "
_USAGE_WIDTH = 17


class SlashCommands:
    """Runs the slash commands of one chat; the method `_help` runs `/help`, and so on."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    def run(self, line: str) -> None:
        """Runs one line that begins with a slash; raises SharpiError."""
        name, rest = command_of(line)
        act: Callable[[str], None] = getattr(self, f"_{name.removeprefix('/')}")
        act(rest)

    @property
    def _conversation(self) -> "Conversation":
        return self._chat.conversation

    def _messages(self) -> str:
        return plural(len(self._conversation.messages), "message")

    def _help(self, rest: str) -> None:
        for usage, purpose in COMMANDS.items():
            print_stderr(f"{usage:{_USAGE_WIDTH}}{purpose}", _USAGE_WIDTH)
        for line in ADVICE:
            print_stderr(line)

    def _retry(self, rest: str) -> None:
        self._chat.answer(self._conversation.undo_last())

    def _undo(self, rest: str) -> None:
        question = self._conversation.undo_last()
        self._chat.write_log()
        print_stderr(f"Took back: {' '.join(question.split())[:60]}")

    def _edit(self, rest: str) -> None:
        if not self._chat.lines.has_editor:
            raise UsageError("/edit needs a terminal with an editor; /undo takes a question back")
        self._chat.initial_text = self._conversation.undo_last()
        self._chat.write_log()

    def _reset(self, rest: str) -> None:
        self._chat.reset()
        print_stderr("The conversation is empty.")

    def _save(self, rest: str) -> None:
        replaces = rest.startswith(_REPLACE)
        path = _path(rest.removeprefix(_REPLACE), "/save")
        if not replaces and self._chat.lines.is_interactive and path.is_file():
            replaces = self._chat.lines.confirm(f"{path} exists. Replace it?")
            if not replaces:
                print_stderr("Nothing was saved.")
                return
        self._conversation.save(path, replaces=replaces)
        print_stderr(f"Saved {self._messages()} to {path}.")

    def _load(self, rest: str) -> None:
        path = _path(rest, "/load")
        self._conversation.restore(read_saved(path)[0], str(path))
        self._chat.log.begin_anew()
        show_messages(self._conversation.messages)
        print_stderr(f"Loaded {self._messages()} from {path}.")

    def _file(self, rest: str) -> None:
        path = _path(rest, "/file")
        text = text_of_file(str(path))
        self._chat.attach(path.name, text)
        lines = plural(len(text.splitlines()), "line")
        print_stderr(f"{path.name} ({lines}) goes with the next question.")

    def _system(self, rest: str) -> None:
        if rest:
            self._conversation.set_system(rest)
        print_stderr(f"System message: {self._conversation.system or 'none'}")

    def _set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        if name and not value.strip():
            raise UsageError(f"/set {name} needs a value; /set lists what there is")
        if name:
            print_stderr(self._chat.settings.set(name, value.strip()))
            return
        for line in self._chat.settings.lines():
            print_stderr(line, INDENT)

    def _model(self, rest: str) -> None:
        if rest:
            self._chat.change_model(rest)
        print_stderr(self._chat.description)

    def _reasoning(self, rest: str) -> None:
        messages = self._conversation.messages
        last = messages[-1]["content"] if messages and messages[-1]["role"] == "assistant" else ""
        reasoning = reasoning_of(last, self._conversation.prompt)
        print_stderr(
            strip_controls(reasoning).strip() or "There was no reasoning before the last answer."
        )

    def _stats(self, rest: str) -> None:
        conversation = self._conversation
        used, size = conversation.num_tokens, conversation.engine.context_size
        print_stderr(f"{self._messages()}, {used} of {size} tokens of context in use")
        if conversation.timings is not None:
            for line in verbose_lines(conversation.timings):
                print_stderr(line)

    def _experts(self, rest: str) -> None:
        stats = self._conversation.engine.expert_stats()
        if stats is None:
            print_stderr(_NOT_COUNTED)
            return
        from sharpi.cli.output.stats_table import print_stats

        print_stats(stats, sys.stderr)

    def _exit(self, rest: str) -> None:
        self._chat.has_left = True


def _path(text: str, command: str) -> Path:
    if not text.strip():
        raise UsageError(f"{command} needs the name of a file")
    return Path(text.strip()).expanduser()
