"""Turns the user's text into the tokens of a prompt, with or without a chat template."""

from typing import TYPE_CHECKING

from msgspec import Struct

from sharpi.cli.options.conversation import ConversationOptions
from sharpi.cli.output.terminal import print_note, print_stderr
from sharpi.errors import UsageError

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine
    from sharpi.tokenizer.tokenizer import Tokenizer


class Prompt(Struct, frozen=True):
    """The prompt of one answer, as text and as token ids."""

    text: str  # as the model receives it
    ids: list[int]  # as the model receives them
    echo: str  # printed before the answer: the text to continue, or "" for a chat


def refuse_contradictions(options: ConversationOptions) -> None:
    """Raises UsageError for options that need a chat template, if --raw disables it."""
    if options.raw and options.system is not None:
        raise UsageError("--raw and --system contradict each other; a raw prompt has no roles")
    if options.raw and options.think is not None:
        raise UsageError("--raw and --think contradict each other; a raw prompt has no template")


def note_useless_options(engine: "Engine", options: ConversationOptions) -> None:
    """Prints a note if --think or --no-think was given but the chat template has no such switch."""
    if options.think is None or engine.chat_format.can_switch_thinking:
        return
    flag = "--think" if options.think else "--no-think"
    print_note(f"{flag} has no effect: this model's chat template has no switch for reasoning")


def has_no_template(engine: "Engine", options: ConversationOptions) -> bool:
    """Returns whether no chat template is used: with --raw, or if the file has none.

    Raises UsageError for --system if the file has no template.
    """
    if options.raw:
        return True
    has_template = engine.chat_format.kind != "plain"
    if not has_template and options.system is not None:
        raise UsageError("--system: this model has no chat template; put the text in the prompt")
    return not has_template


def whole_prompt(engine: "Engine", text: str, options: ConversationOptions) -> Prompt:
    """Returns the prompt of one question; raises TemplateError or UsageError."""
    if has_no_template(engine, options):
        return Prompt(text, opening_ids(engine.tokenizer, text), echo=text)
    messages = [{"role": "user", "content": text}]
    if options.system is not None:
        messages.insert(0, {"role": "system", "content": options.system})
    rendered = engine.chat_format.render(messages, enable_thinking=options.think)
    return Prompt(rendered, opening_ids(engine.tokenizer, rendered), echo="")


def show_prompt(tokenizer: "Tokenizer", text: str, ids: list[int]) -> None:
    """Prints the prompt as the model receives it, and each of its tokens, to stderr."""
    print_stderr(f"prompt: {text!r}, {len(ids)} tokens")
    for token_id in ids:
        print_stderr(
            f"{token_id:6d} -> {tokenizer.token_bytes(token_id).decode('utf-8', 'replace')!r}"
        )


def opening_ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Tokenizes the text at the beginning of a sequence; adds BOS if the vocabulary requires it."""
    return tokenizer.encode(text, add_bos=tokenizer.add_bos, parse_special=True)
