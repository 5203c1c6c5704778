"""`sharpi chat`: a conversation at the terminal, or with messages read from a pipe."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from sharpi.cli.chat.line_input import Input, LineInput
from sharpi.cli.chat.prompt import output_format
from sharpi.cli.inputs import ModelArgument, ModelOption, NoLogOption, PullOption, find_model
from sharpi.cli.output.loading import open_engine
from sharpi.cli.output.terminal import can_draw, print_stderr, stdin_is_terminal
from sharpi.cli.run_config import OptionSources, complete
from sharpi.cli.termination import exiting_on_ctrl_c
from sharpi.errors import UsageError
from sharpi.settings import GenerationRequest, RunConfig
from sharpi.settings.option import Option, local_option
from sharpi.settings.sampling import ConstraintOptions, ConversationOptions

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine


def chat(
    context: typer.Context,
    request: GenerationRequest,
    answer_format: ConstraintOptions,
    conversation: ConversationOptions,
    config: RunConfig,
    model: ModelArgument = None,
    model_file: ModelOption = None,
    pull: PullOption = False,
    single_turn: Annotated[bool, Option("-st --single-turn", "End after one answer.")] = False,
    continues: Annotated[
        bool, local_option("--continue", "Go on with the latest chat of `sharpi log`.")
    ] = False,
    resume: Annotated[
        str | None,
        local_option("--resume NAME", "Go on with what /save wrote, or with an id of the log."),
    ] = None,
    no_log: NoLogOption = False,
) -> None:
    """Talk with a model.

    /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves. Alt-Enter begins a new line,
    Tab completes. A model without a chat template continues one growing text. Answers go to stdout,
    everything else to stderr. The conversation is kept; see `sharpi log`.
    """
    from sharpi.cli.chat.chat import Chat, greeting
    from sharpi.cli.chat.chat_settings import ChatSettings
    from sharpi.cli.chat.prompt import refuse_contradictions
    from sharpi.cli.chat.slash_commands import SlashCommands
    from sharpi.cli.log.conversation_log import ConversationLog, find_resumed

    refuse_contradictions(conversation)
    if continues and resume is not None:
        raise UsageError("--continue and --resume both name a conversation; keep one")
    wanted = output_format(answer_format, OptionSources(context))
    resumed = find_resumed(resume) if continues or resume is not None else None
    is_named = model is not None or model_file is not None
    known = resumed.model if resumed and not is_named else None
    path = known or find_model(context, model)
    config = complete(context, config, path)

    def open_model(path: Path) -> "AbstractContextManager[Engine]":
        return open_engine(replace(config, model=path))

    settings = ChatSettings(request, conversation)
    kept = resumed.kept if resumed else None
    log = ConversationLog("chat", is_wanted=not no_log, kept=kept)
    with Chat(open_model, settings, open_input(), log, wanted) as chat:
        chat.open(path)
        if chat.lines.is_interactive:
            print_stderr(greeting(chat.description, chat.conversation.has_no_template))
        if resumed is not None:
            chat.resume(resumed.messages, resumed.source)
        chat.run(SlashCommands(chat).run, single_turn=single_turn)


def open_input() -> Input:
    """Returns the editor if stdin and stdout are a terminal that can draw, else line input."""
    if stdin_is_terminal() and can_draw(sys.stdout):
        with exiting_on_ctrl_c():
            from sharpi.cli.chat.terminal_input import TerminalInput

        return TerminalInput()
    return LineInput()
