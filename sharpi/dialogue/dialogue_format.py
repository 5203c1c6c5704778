"""DialogueFormat converts a conversation with tools to a prompt, and an answer to events."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sharpi.dialogue.answer_parser import AnswerParser
from sharpi.dialogue.answer_text import AnswerText, Calls
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.choose_format import choose_format
from sharpi.dialogue.formats.harmony import FINAL, START, Harmony
from sharpi.dialogue.history import prepare
from sharpi.dialogue.template_capabilities import NO_TOOLS, TemplateCapabilities, probe_template
from sharpi.dialogue.tools import Tool, ToolChoice
from sharpi.tokenizer.chat_template import ChatFormat
from sharpi.tokenizer.reasoning import ReasoningMarkers, find_markers, opens_reasoning
from sharpi.tokenizer.tokenizer import Tokenizer

_INSTRUCTION = """\
# Tools

You may call functions. These are the functions, each with the JSON schema of its parameters:

<tools>
{tools}
</tools>

To call one, write exactly this, with the function's own name and arguments:

{sample}"""
_SAMPLE = [("function_name", {"argument_name": "value"})]


def tool_object(tool: Tool) -> dict[str, object]:
    """Returns the tool as a JSON object of the OpenAI API, the form that templates expect."""
    parameters = dict(tool.parameters)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


_UNKNOWN = "calls of tools may stay text: this chat template's notation of them is not known"
_BLANK_LINE = r'("\n" "\n"?)?'  # may follow reasoning


def dialogue_format(tokenizer: Tokenizer, chat_format: ChatFormat) -> "DialogueFormat":
    """Returns a model's dialogue format, from its chat template and vocabulary."""
    return DialogueFormat(tokenizer, chat_format, probe_template(chat_format))


class DialogueFormat:
    """The dialogue format of one model; it is stateless and thread-safe.

    `shows_special`: a GenerationRequest must show control tokens, because markers of calls or of
    reasoning are control tokens. `reasoning`: the markers around reasoning; None without any.
    `note`: a line for the user if the notation of the template's calls is not known; else None.
    """

    def __init__(
        self, tokenizer: Tokenizer, chat_format: ChatFormat, capabilities: TemplateCapabilities
    ) -> None:
        self._tokenizer, self._chat_format = tokenizer, chat_format
        self._capabilities = capabilities
        source = chat_format.source + tokenizer.vocabulary.other_templates.get("tool_use", "")
        self.form, is_known = choose_format(tokenizer, source, capabilities.shown_call)
        self.note = None if is_known or not capabilities.shows_tools else _UNKNOWN
        self.reasoning = self.form.reasoning or self._markers()
        self.shows_special = any(map(self._is_control, (*self.form.markers, *self._around())))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Tool] = (),
        choice: ToolChoice | None = None,
        enable_thinking: bool | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """Renders messages of the OpenAI API to a prompt that ends where the answer begins.

        If the template does not support tools, a system instruction describes them. Raises
        TemplateError, with the template's own error message if it raises one.
        """
        shown = () if choice is not None and choice.mode == "none" else tools
        is_told = not shown or self._capabilities.shows_tools
        instruction = "" if is_told else self._instruction(shown)
        prepared = prepare(messages, self._capabilities, self.form, instruction)
        thinking = {} if enable_thinking is None else {"thinking": enable_thinking}
        objects = [] if instruction else [tool_object(tool) for tool in shown]
        no_tools = NO_TOOLS if self._capabilities.needs_tools and not objects else {}
        return self._chat_format.render(
            prepared,
            tools=objects,
            enable_thinking=enable_thinking,
            extra={**no_tools, **thinking, **(extra or {})},
        )

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yields what the chat template holds, and what happens to messages that it cannot hold."""
        yield "tool calls", self.note or f"in the notation of {self.form.name}"
        if self.reasoning is not None:
            yield "reasoning", f"between {self.reasoning.opening!r} and {self.reasoning.closing!r}"
        for what, move in self._capabilities.moves():
            yield "no place for", f"{what}: {move}"

    def starts_inside(self, prompt: str) -> bool:
        """Returns whether the prompt ends within reasoning, so that the answer continues it."""
        return self.reasoning is not None and opens_reasoning(prompt, self.reasoning)

    def before_answer(self, prompt: str) -> tuple[str, str] | None:
        """Returns the markers around the reasoning that may come before the answer to a prompt.

        The first is empty if the prompt ends within reasoning. None without reasoning.
        """
        if self.reasoning is None:
            return None
        if isinstance(self.form, Harmony):
            has_begun = FINAL in prompt.rpartition(START)[2]
            return None if has_begun else ("", FINAL)
        return "" if self.starts_inside(prompt) else self.reasoning.opening, self.reasoning.closing

    def parser(self, prompt: str, tools: Sequence[Tool] = ()) -> AnswerParser:
        """Returns a parser for the answer to a prompt; without `tools`, it finds no calls."""
        source = AnswerText()
        reading = self.form.read_answer(
            source, Calls(tools), self.reasoning, self.starts_inside(prompt)
        )
        return AnswerParser(source, reading)

    def call_grammar(self, tools: Sequence[Tool], choice: ToolChoice) -> str | None:
        """Returns the grammar of an answer with the calls that `choice` requires.

        Returns None if no call is required. The grammar is Lark in llguidance's dialect. It covers
        the answer from its beginning, or from the end of the reasoning.
        """
        named = [tool for tool in tools if choice.name in (None, tool.name)]
        if choice.mode != "required" or not named:
            return None
        grammar = CallGrammar(self._tokenizer, self.form.markers)
        expression = self.form.expression(grammar, named, choice.parallel)
        blank = f"{_BLANK_LINE} " if self.reasoning and not self.form.reasoning else ""
        return grammar.text(f"{blank}{expression}")

    def _instruction(self, tools: Sequence[Tool]) -> str:
        """Returns text for the system message that lists the tools and shows how to call one."""
        lines = [json.dumps(tool_object(tool), ensure_ascii=False) for tool in tools]
        return _INSTRUCTION.format(tools="\n".join(lines), sample=self.form.write(_SAMPLE))

    def _is_control(self, marker: str) -> bool:
        token, ends = self._tokenizer.id_of(marker), self._tokenizer.end_ids
        return token is not None and self._tokenizer.is_hidden(token) and token not in ends

    def _around(self) -> tuple[str, ...]:
        """Returns the markers around reasoning and answers."""
        markers = self.reasoning
        return () if markers is None else (markers.opening, markers.closing, *markers.around_answer)

    def _markers(self) -> ReasoningMarkers | None:
        """Returns the markers of reasoning, without markers of answers that are around results."""
        markers, shown = find_markers(self._tokenizer), self._capabilities.shown_call
        if markers is None or shown is None or not shown.shows_result_in(markers.around_answer[:1]):
            return markers
        return replace(markers, around_answer=())
