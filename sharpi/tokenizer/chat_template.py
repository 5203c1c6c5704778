"""ChatFormat: renders messages in the prompt format that a model was trained on.

It uses the chat template in the model's file. Without a template, it uses ChatML if the vocabulary
has ChatML's markers, and otherwise the plain contents.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from sharpi.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from sharpi.tokenizer.template_sandbox import TemplateSandbox

Message = Mapping[str, Any]
Kind = Literal["template", "chatml", "plain"]

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CHATML_MARKS = ("<|im_start|>", "<|im_end|>")
_TOOL_TEMPLATE = "tool_use"
_SPECIAL_TOKENS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown"}


class ChatFormat:
    """The prompt format of a model.

    `kind`: "template" for a chat template in the file, "chatml", or "plain". `source`: the template
    to render. `tokens`: the special tokens that a template may name ("bos_token" ...).
    `tool_source`: the template to use with tools, if the file has a separate one.
    """

    def __init__(
        self,
        kind: Kind,
        source: str = "",
        tokens: Mapping[str, str] | None = None,
        tool_source: str | None = None,
    ) -> None:
        self.kind, self.source = kind, source
        self._tokens = dict(tokens or {})
        self._tool_source = tool_source

    @property
    def can_switch_thinking(self) -> bool:
        """True if the template uses `enable_thinking`."""
        return "enable_thinking" in self.source

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
        add_generation_prompt: bool = True,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """Renders messages to a prompt.

        `enable_thinking`: passed to the template unless it is None. `extra`: more variables for the
        template. Raises TemplateError, with the template's own error message if it raises one.
        """
        if self.kind == "plain":
            return "\n".join(str(message.get("content", "")) for message in messages)
        values: dict[str, Any] = {
            **self._tokens,
            "messages": [dict(message) for message in messages],
            "tools": list(tools) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **(extra or {}),
        }
        if enable_thinking is not None:
            values["enable_thinking"] = enable_thinking
        source = self._tool_source if tools and self._tool_source else self.source
        return self._renderer.render(source, values)

    @cached_property
    def _renderer(self) -> "TemplateSandbox":
        # Importing jinja2 is slow, and a plain format does not need it.
        from sharpi.tokenizer.template_sandbox import TemplateSandbox

        return TemplateSandbox()


def chat_format(tokenizer: Tokenizer) -> ChatFormat:
    """Returns the chat format of a model, from its file's template and vocabulary."""
    vocabulary = tokenizer.vocabulary
    tokens = {name: _text_of(tokenizer, role) for name, role in _SPECIAL_TOKENS.items()}
    if vocabulary.chat_template:
        tool_source = vocabulary.other_templates.get(_TOOL_TEMPLATE)
        return ChatFormat("template", vocabulary.chat_template, tokens, tool_source)
    if all(tokenizer.id_of(mark) is not None for mark in _CHATML_MARKS):
        return ChatFormat("chatml", CHATML, tokens)
    return ChatFormat("plain")


def _text_of(tokenizer: Tokenizer, role: str) -> str:
    token_id = tokenizer.vocabulary.id_of(role)
    return "" if token_id is None else tokenizer.token_text(token_id)
