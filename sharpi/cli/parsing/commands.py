"""The Click group of all commands, which imports each command when it is needed."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from sharpi.cli.parsing.command import SETTINGS
from sharpi.cli.parsing.help_page import write_examples

_MORE = "`sharpi COMMAND -h` shows a command's everyday options, `sharpi help COMMAND` all of it."


@contextmanager
def _aborted_by_ctrl_c() -> Iterator[None]:
    """Turns KeyboardInterrupt into click's Abort, and ends the terminal's line after ^C.

    Click would write an empty line even if stderr is a file.
    """
    try:
        yield
    except KeyboardInterrupt as end:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        raise click.Abort from end


class Commands(click.Group):
    """The Click group of all commands, listed in sections."""

    def __init__(
        self,
        sections: Mapping[str, Sequence[str]],
        load: Callable[[str], click.Command],
        examples: Sequence[str],
        **settings: Any,
    ) -> None:
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__("sharpi", context_settings=SETTINGS | names, **settings)
        self._sections, self._load, self._examples = sections, load, examples
        self._names = [name for names in sections.values() for name in names]

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parses the options before the command's name; raises click's Abort at Ctrl-C."""
        with _aborted_by_ctrl_c():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command that the arguments name; raises click's Abort at Ctrl-C."""
        with _aborted_by_ctrl_c():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order in which the help lists them."""
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns the command `cmd_name`; None if it does not exist."""
        if cmd_name not in self._names:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = self._load(cmd_name)
        return self.commands[cmd_name]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that `args[0]` names; raises UsageError with similar names."""
        if args[0] not in self._names and not args[0].startswith("-"):
            ctx.fail(f"{args[0]!r} is no command of sharpi{self._hint(args[0])}")
        return super().resolve_command(ctx, args)

    def _hint(self, word: str) -> str:
        """Returns a "did you mean" hint for a word that is no command; empty without one.

        The word may be a model, a prompt or a misspelt command.
        """
        from difflib import get_close_matches
        from shlex import quote

        if word.lower().endswith(".gguf") or "/" in word or ":" in word:
            return f"; did you mean `sharpi run {quote(word)}`?"
        if " " in word:
            return f"; did you mean `sharpi run MODEL {quote(word)}`?"
        close = get_close_matches(word, self._names, n=2, cutoff=0.6)
        return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands under the headings of their sections."""
        width = max(map(len, self._names))
        for heading, names in self._sections.items():
            rows = [(name.ljust(width), self._summary(ctx, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, and a line about further help."""
        write_examples(self._examples, formatter)
        formatter.write_paragraph()
        formatter.write_text(_MORE)

    def _summary(self, context: click.Context, name: str) -> str:
        command = self.get_command(context, name)
        return "" if command is None else (command.help or "").partition("\n\n")[0]
