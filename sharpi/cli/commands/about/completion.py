"""`sharpi completion`: the script that makes a shell complete commands, flags and values."""

from typing import Annotated, Literal

import click

from sharpi.cli.options.option import argument
from sharpi.errors import SharpiError

Shell = Literal["bash", "zsh", "fish"]


def completion(
    context: click.Context,
    shell: Annotated[Shell, argument("SHELL", "bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell.

    For bash, put `eval "$(sharpi completion bash)"` into ~/.bashrc; for zsh, the same with zsh into
    ~/.zshrc, after compinit. For fish, write the script into
    ~/.config/fish/completions/sharpi.fish.
    """
    from click.shell_completion import get_completion_class

    parent = context.parent or context
    kind = get_completion_class(shell)
    assert kind is not None
    try:
        script = kind(parent.command, {}, "sharpi", "_SHARPI_COMPLETE").source()
    except (OSError, RuntimeError) as error:  # the check of bash's version may fail
        raise SharpiError(f"no completion for {shell}: {error}") from None
    print(script)
