"""The settings that turn text into a conversation, and the form that answers must have."""

from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.settings.option import Option


class ConversationOptions(Struct, frozen=True):
    """The options for the chat template, and for printing prompts and statistics."""

    GROUP: ClassVar = "Conversation"

    raw: Annotated[bool, Option("--raw", "Continue the text without the chat template.")] = False
    system: Annotated[
        str | None, Option("-sys --system --system-prompt TEXT", "The system message.")
    ] = None
    verbose_prompt: Annotated[
        bool, Option("--verbose-prompt", "Print each prompt and its tokens to stderr.")
    ] = False
    verbose: Annotated[
        bool,
        Option("-v --verbose", "Print what each kind of draft gained. (The version: `sharpi -v`.)"),
    ] = False
    think: Annotated[
        bool | None,
        Option("--think/--no-think", "Turn reasoning on or off.", default="the template's"),
    ] = None


class ConstraintOptions(Struct, frozen=True):
    """The schema or grammar that every answer must match."""

    GROUP: ClassVar = "Structured output"

    json_schema: Annotated[
        str | None, Option("--json-schema FILE", "Answer in JSON that follows the schema in FILE.")
    ] = None
    json_object: Annotated[bool, Option("--json-object", "Answer with a JSON object.")] = False
    grammar: Annotated[
        str | None,
        Option("--grammar FILE", "Follow the grammar in FILE: GBNF, or llguidance's Lark."),
    ] = None
