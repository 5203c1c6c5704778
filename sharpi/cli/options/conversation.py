"""The options that turn text into a conversation."""

from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.cli.options.option import option


class ConversationOptions(Struct, frozen=True):
    """Options of the chat template."""

    heading: ClassVar = "Conversation"

    raw: Annotated[bool, option("--raw", "Continue the text without the chat template.")] = False
    system: Annotated[
        str | None, option("-sys --system", "The system message, before the conversation.", "TEXT")
    ] = None
    think: Annotated[
        bool | None,
        option(
            "--think/--no-think",
            "Turn reasoning on or off, if the chat template supports it.",
            show_default="the template's",
        ),
    ] = None
