"""Chat: connects the conversation, the model that answers, and the user's input."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sharpi import __version__
from sharpi.cli.chat.answer_view import show_answer
from sharpi.cli.chat.chat_settings import ChatSettings
from sharpi.cli.chat.conversation import Conversation
from sharpi.cli.chat.line_input import Input
from sharpi.cli.chat.prompt import ConstrainedAnswers, OutputFormat, note_useless_options
from sharpi.cli.chat.reply import note_end, verbose_lines
from sharpi.cli.log.conversation_log import ConversationLog, show_messages
from sharpi.cli.log.log_store import Message
from sharpi.cli.model_path import model_path
from sharpi.cli.output.terminal import print_error, print_note, print_stderr
from sharpi.cli.termination import uninterrupted
from sharpi.errors import SharpiError, UsageError
from sharpi.system.process import Closing
from sharpi.units import plural

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine


_LEAST_NAME = 8  # letters of the model's name that remain in the bottom line, at least


def describe(engine: "Engine") -> str:
    """Returns two lines: model, architecture and quant type; context, and where it runs."""
    kind = f"{engine.model_config.architecture}, {_quant_type(engine)}"
    place = f"context {engine.context_size} tokens, {_place(engine)}"
    return f"{engine.config.model.stem} ({kind})\n{place}"


def greeting(description: str, has_no_template: bool) -> str:
    """Returns the first lines of a chat: the version, the description, and a hint for the user."""
    first = f"sharpi {__version__} · {description}"
    if has_no_template:
        hint = "This model has no chat template and continues what you write. /help for help."
    else:
        hint = "Ask away. /help for help."
    return f"{first}\n{hint}"


def status_line(conversation: "Conversation") -> str:
    """Returns the bottom line: the model's name, cut if it is long, context in use, and speed."""
    used, size = conversation.num_tokens, conversation.engine.context_size
    numbers = f" · {used} of {size} tokens"
    timings = conversation.timings
    if timings is not None and timings.decode_tokens_per_second:
        numbers += f" · {timings.decode_tokens_per_second:.1f} tokens/s"
    room = max(_LEAST_NAME, shutil.get_terminal_size().columns - len(numbers) - 2)
    name = conversation.engine.config.model.stem
    return f" {name if len(name) <= room else name[: room - 3] + '...'}{numbers}"


def _quant_type(engine: "Engine") -> str:
    """Returns the quant type that most bytes of the file have."""
    num_bytes: Counter[str] = Counter()
    for tensor in engine.file.tensors.values():
        num_bytes[tensor.quant_type.name] += tensor.num_bytes
    return num_bytes.most_common(1)[0][0] if num_bytes else "no weights"


def _place(engine: "Engine") -> str:
    num_layers, plan = engine.model_config.num_layers, engine.plan
    on_gpu = num_layers - (plan.first_gpu_layer if plan is not None else num_layers)
    if on_gpu == num_layers:
        place = "on the GPU"
    elif on_gpu:
        place = f"{on_gpu} of {num_layers} layers on the GPU"
    else:
        place = f"on the CPU with {plural(engine.runner.settings.num_threads, 'thread')}"
    return place + (", experts from disk" if engine.streams_experts else "")


OpenModel = Callable[[Path], AbstractContextManager["Engine"]]


def is_command(text: str) -> bool:
    """Returns whether a message is a command, rather than a question."""
    line = text.lstrip()
    return line.startswith("/") and not line.startswith("//")


def question_of(text: str) -> str:
    """Returns the question to ask; removes one of two leading slashes."""
    line = text.lstrip()
    return line[1:] if line.startswith("//") else text


class Chat(Closing):
    """The loop of a chat: reads messages, and answers them with the model that it opened."""

    def __init__(
        self,
        open_model: OpenModel,
        settings: ChatSettings,
        lines: Input,
        log: ConversationLog,
        output_format: OutputFormat | None = None,
    ) -> None:
        self._open_model, self.settings = open_model, settings
        self.lines, self.log, self._output_format = lines, log, output_format
        self._attached: list[str] = []
        self._model = ExitStack()
        self.conversation: Conversation
        self.description = ""  # of the model and the place where it runs
        self.initial_text = ""  # shown in the editor for the next message
        self.has_left = False
        lines.status = lambda: status_line(self.conversation)

    def open(self, path: Path) -> None:
        """Loads a model and begins an empty conversation; raises SharpiError if loading fails."""
        engine = self._model.enter_context(self._open_model(path))
        self.description = describe(engine)
        note_useless_options(engine, self.settings.conversation)
        form, options = self._output_format, self.settings.conversation
        constrained = ConstrainedAnswers(form, engine.tokenizer) if form else None
        self.conversation = Conversation(engine, self.settings.request, options, constrained)

    def close(self) -> None:
        """Closes the model and the log; a second call does nothing."""
        self._model.close()
        self.log.close()

    def resume(self, messages: Sequence[Message], source: str) -> None:
        """Continues `messages` from `source`; raises UsageError for a refused system message."""
        self.conversation.restore(messages, source)
        if self.lines.is_interactive:
            show_messages(messages)

    def run(self, run_command: Callable[[str], None], *, single_turn: bool = False) -> None:
        """Answers messages, one with `single_turn`, until the input ends or the user leaves."""
        while not self.has_left:
            text = self._next_message()
            if text is None:
                return
            try:
                self._handle(text, run_command, single_turn)
            except SharpiError as error:
                print_error(str(error))
            except KeyboardInterrupt:  # outside an answer, or while a model is loading
                if not self.lines.is_interactive:
                    raise
                print_stderr("Interrupted.")

    def _handle(self, text: str, run_command: Callable[[str], None], single_turn: bool) -> None:
        if is_command(text):
            run_command(text)
        elif text.strip() or self._attached:
            question = "".join([*self._attached, question_of(text)])
            self._attached.clear()
            self.answer(question)
            self.has_left = single_turn

    def _next_message(self) -> str | None:
        """Returns the next message, None at the end; at a terminal, Ctrl-C discards the line."""
        while True:
            text, self.initial_text = self.initial_text, ""
            try:
                return self.lines.read(text)
            except KeyboardInterrupt:
                if not self.lines.is_interactive:
                    raise
                print_stderr("Ctrl-D or /exit leaves.")

    def answer(self, question: str) -> None:
        """Answers a question and logs both; after SharpiError, the question is removed again."""
        conversation, settings = self.conversation, self.settings
        conversation.request, conversation.think = settings.request, settings.conversation.think
        generation = conversation.ask(question)
        self.write_log()
        try:
            show_answer(generation, conversation.prompt, conversation.has_no_template)
        except SharpiError:
            conversation.forget_question()
            self.write_log()
            raise
        except (SystemExit, OSError):  # a signal, or a closed terminal
            conversation.keep(generation)
            self.write_log()
            raise
        conversation.keep(generation)
        self.write_log()
        note_end(generation, conversation.constrained)
        if conversation.constrained is None and generation.finish_reason == "length":
            print_note("-n ended the answer; /set predict -1 lets the model end")
        if settings.conversation.verbose:
            for line in verbose_lines(generation.timings):
                print_stderr(line)

    def attach(self, name: str, text: str) -> None:
        """Stores the text of the file `name`, which the next question will begin with."""
        self._attached.append(f"{name}:\n```\n{text.rstrip()}\n```\n\n")

    def reset(self) -> None:
        """Begins another conversation with the same system message."""
        self.conversation.reset()
        self._attached.clear()
        self.log.begin_anew()

    def write_log(self) -> None:
        """Writes the messages into the log."""
        with uninterrupted():
            self.log.write(self.conversation.messages, self.conversation.engine.config.model)

    def change_model(self, name: str) -> None:
        """Continues with another model; raises SharpiError, and keeps this model, if that fails."""
        path, before = model_path(name), self.conversation.engine.config.model
        if not path.exists():
            raise UsageError(f"{name}: no such file or model; `sharpi list` shows what there is")
        messages = self.conversation.messages
        self._model.close()
        try:
            self.open(path)
            self.conversation.restore(messages, "the conversation")
        except (SharpiError, KeyboardInterrupt):
            self._model.close()
            self.open(before)
            self.conversation.messages = messages
            raise
