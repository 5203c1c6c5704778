"""The options that turn text into a conversation."""

from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.cli.options.option import option


class ConversationOptions(Struct, frozen=True):
    """The options for the chat template, and for printing prompts and statistics."""

    heading: ClassVar = "Conversation"

    raw: Annotated[bool, option("--raw", "Continue the text without the chat template.")] = False
    system: Annotated[
        str | None,
        option(
            "-sys --system --system-prompt",
            "The system message, before the conversation.",
            "TEXT",
            is_everyday=True,
        ),
    ] = None
    verbose_prompt: Annotated[
        bool, option("--verbose-prompt", "Print each prompt and its tokens to stderr.")
    ] = False
    verbose: Annotated[
        bool,
        option(
            "-v --verbose",
            "Print after an answer what each kind of draft gained. (The version: `sharpi -v`.)",
        ),
    ] = False
    think: Annotated[
        bool | None,
        option(
            "--think/--no-think",
            "Turn reasoning on or off, if the chat template supports it.",
            show_default="the template's",
            is_everyday=True,
        ),
    ] = None
