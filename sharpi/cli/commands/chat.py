"""`sharpi chat`: a conversation at the terminal, or with the lines of a pipe."""

import typer

from sharpi.cli.chat.conversation import Conversation
from sharpi.cli.chat.line_input import LineInput
from sharpi.cli.chat.prompt import refuse_contradictions
from sharpi.cli.chat.reasoning_style import ReasoningStyle
from sharpi.cli.chat.reply import note_cut_form, note_early_end, stream
from sharpi.cli.chat.slash_commands import SlashCommands
from sharpi.cli.options.answer_form import FormedAnswers
from sharpi.cli.options.constraint import ConstraintOptions
from sharpi.cli.options.context import ContextOptions
from sharpi.cli.options.conversation import ConversationOptions
from sharpi.cli.options.engine import EngineOptions
from sharpi.cli.options.inputs import find_model
from sharpi.cli.options.length import LengthOptions
from sharpi.cli.options.sampling import SamplingOptions
from sharpi.cli.options.source import ModelArgument, ModelOption
from sharpi.cli.output.loading import open_engine
from sharpi.cli.output.terminal import complain, say
from sharpi.errors import SharpiError


def chat(
    context: typer.Context,
    length: LengthOptions,
    sampling: SamplingOptions,
    form_options: ConstraintOptions,
    conversation: ConversationOptions,
    limits: ContextOptions,
    engine_options: EngineOptions,
    model: ModelArgument = None,
    model_file: ModelOption = None,
) -> None:
    """Talk with a model.

    /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves. A model without a chat template
    continues one growing text, line by line. Answers go to stdout, everything else to stderr. A
    line that ends in a backslash continues on the next one.
    """
    refuse_contradictions(conversation)
    form = form_options.form(context)
    path = find_model(context, model)
    config = engine_options.run_config(
        context,
        path,
        context_size=limits.ctx_size,
        context_shift=limits.context_shift,
    )
    with open_engine(config) as engine:
        formed = FormedAnswers(form, engine.tokenizer) if form else None
        request = length.request(sampling)
        talk(Conversation(engine, request, conversation, formed), LineInput())


def talk(conversation: Conversation, lines: LineInput) -> None:
    """Answers messages and runs commands, until the input ends or /exit."""
    commands = SlashCommands(conversation)
    if lines.is_interactive:
        say(_greeting(conversation))
    while not commands.has_left:
        text = _next_message(lines)
        if text is None:
            return
        try:
            if text.startswith("/"):
                commands.run(text)
            elif text.strip():
                _answer(conversation, text)
        except SharpiError as error:
            complain(str(error))


def _greeting(conversation: Conversation) -> str:
    if conversation.is_plain:
        return "This model has no chat template and continues what you write. /help for help."
    return "Ask away. /help for help."


def _next_message(lines: LineInput) -> str | None:
    """Reads the next message; Ctrl-C drops the current line at a terminal, and ends a script."""
    while True:
        try:
            return lines.read()
        except KeyboardInterrupt:
            if not lines.is_interactive:
                raise
            say("\nCtrl-D or /exit leaves.")


def _answer(conversation: Conversation, text: str) -> None:
    generation = conversation.ask(text)
    try:
        stream(generation, ReasoningStyle(conversation.prompt))
    except SharpiError:
        conversation.forget_question()
        raise
    conversation.keep(generation)
    note_early_end(generation)
    note_cut_form(generation, conversation.formed)
