"""The options that say how text becomes a conversation."""

from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.cli.options.option import option


class ConversationOptions(Struct, frozen=True):
    """How text becomes a conversation with the model's chat template."""

    heading: ClassVar = "Conversation"

    raw: Annotated[bool, option("--raw", "Continue the text: no chat template.")] = False
    system: Annotated[
        str | None, option("-sys --system", "The system message, before the conversation.", "TEXT")
    ] = None
    think: Annotated[
        bool | None,
        option(
            "--think/--no-think",
            "Ask for reasoning, or none, of a model whose template has the choice.",
            show_default="the template's",
        ),
    ] = None
