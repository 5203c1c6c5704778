"""The commands of a chat, which begin with a slash."""

import sys
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from sharpi.cli.chat.conversation import Conversation
from sharpi.cli.chat.reply import timings_line
from sharpi.cli.output.terminal import say
from sharpi.errors import UsageError

_NOT_COUNTED = "No experts were counted: there are none, or all fit and --expert-stats is not set."


class SlashCommand(Struct, frozen=True):
    """One command and its line in /help."""

    usage: str
    purpose: str
    act: Callable[[str], None]  # gets the text after the command's name


class SlashCommands:
    """Runs the commands of one conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.has_left = False
        commands = (
            SlashCommand("/help", "show this help", self._help),
            SlashCommand("/reset", "clear the conversation, keep the system message", self._reset),
            SlashCommand("/save FILE", "write the conversation to FILE as JSON", self._save),
            SlashCommand("/load FILE", "continue a saved conversation", self._load),
            SlashCommand(
                "/system TEXT", "set the system message; without TEXT show it", self._system
            ),
            SlashCommand(
                "/stats", "show the context in use and the speed of the last answer", self._stats
            ),
            SlashCommand("/experts", "show which experts were used, and their hits", self._experts),
            SlashCommand("/exit", "leave; so does Ctrl-D", self._exit),
        )
        self._commands = {command.usage.split()[0]: command for command in commands}

    def run(self, line: str) -> None:
        """Runs one line that starts with a slash; raises SharpiError."""
        name, _, rest = line.partition(" ")
        if name not in self._commands:
            raise UsageError(f"no command {name}; /help lists them")
        self._commands[name].act(rest.strip())

    def _help(self, rest: str) -> None:
        for command in self._commands.values():
            say(f"{command.usage:14}{command.purpose}")
        say('A line that ends in \\ continues on the next; """ opens and closes a block of lines.')
        say("Ctrl-C stops an answer and keeps its text so far.")

    def _reset(self, rest: str) -> None:
        self._conversation.reset()
        say("The conversation is empty.")

    def _save(self, rest: str) -> None:
        path = _path(rest, "/save")
        self._conversation.save(path)
        say(f"Saved {_messages(self._conversation)} to {path}.")

    def _load(self, rest: str) -> None:
        path = _path(rest, "/load")
        self._conversation.load(path)
        say(f"Loaded {_messages(self._conversation)} from {path}.")

    def _system(self, rest: str) -> None:
        if rest:
            self._conversation.set_system(rest)
        say(f"System message: {self._conversation.system or 'none'}")

    def _stats(self, rest: str) -> None:
        conversation = self._conversation
        used, size = conversation.num_tokens, conversation.context_size
        say(f"{_messages(conversation)}, {used} of {size} tokens of context in use")
        if conversation.timings is not None:
            say(timings_line(conversation.timings))

    def _experts(self, rest: str) -> None:
        stats = self._conversation.expert_stats()
        if stats is None:
            say(_NOT_COUNTED)
            return
        from sharpi.cli.output.stats_table import print_stats

        print_stats(stats, sys.stderr)

    def _exit(self, rest: str) -> None:
        self.has_left = True


def _path(text: str, command: str) -> Path:
    if not text:
        raise UsageError(f"{command} needs the name of a file")
    return Path(text).expanduser()


def _messages(conversation: Conversation) -> str:
    count = len(conversation.messages)
    return f"{count} message" + ("" if count == 1 else "s")
