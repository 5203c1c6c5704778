"""Chooses the tool format that a model was trained on, from its chat template and vocabulary."""

from sharpi.dialogue.formats.deepseek import CALLS_BEGIN, DeepSeek
from sharpi.dialogue.formats.gemma4 import CALL_BEGIN, Gemma4
from sharpi.dialogue.formats.glm import Glm
from sharpi.dialogue.formats.harmony import Harmony
from sharpi.dialogue.formats.hermes import Hermes
from sharpi.dialogue.formats.invoke_tags import DEEPSEEK_V4, DEEPSEEK_V32, MINIMAX, InvokeTags
from sharpi.dialogue.formats.json_lists import NOTATIONS, JsonLists
from sharpi.dialogue.formats.kimi import SECTION_BEGIN, Kimi
from sharpi.dialogue.formats.lfm2 import LIST_BEGIN, Lfm2
from sharpi.dialogue.formats.llama3 import Llama3
from sharpi.dialogue.formats.mistral import Mistral
from sharpi.dialogue.formats.qwen_coder import QwenCoder
from sharpi.dialogue.formats.solar import SECTION_BEGIN as SOLAR_SECTION
from sharpi.dialogue.formats.solar import Solar
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.tokenizer.chat_template import ChatFormat
from sharpi.tokenizer.tokenizer import Tokenizer


def choose_format(tokenizer: Tokenizer, chat_format: ChatFormat) -> ToolFormat:
    """Returns the tool format whose markers the chat template has; Hermes if it has none."""
    template = chat_format.source + tokenizer.vocabulary.other_templates.get("tool_use", "")

    def is_known(marker: str) -> bool:
        return marker in template or tokenizer.id_of(marker) is not None

    if "<|channel|>" in template and is_known("<|message|>"):
        return Harmony()
    if CALLS_BEGIN in template:
        return DeepSeek(has_blocks="```json" in template)
    if SECTION_BEGIN in template:
        return Kimi()
    if LIST_BEGIN in template:
        return Lfm2()
    if CALL_BEGIN in template:
        return Gemma4()
    if MINIMAX.opening in template:
        return InvokeTags(MINIMAX)
    if DEEPSEEK_V4.prefix in template:  # whose templates put their tags together
        return InvokeTags(DEEPSEEK_V32 if "function_calls" in template else DEEPSEEK_V4)
    if SOLAR_SECTION in template:
        return Solar()
    for notation in NOTATIONS:
        if notation.opening in template:
            return JsonLists(notation)
    if "<tool_call>" in template or "<function=" in template:
        return _in_tags(template)
    if "[TOOL_CALLS]" in template:
        return Mistral(is_newer="[ARGS]" in template, has_ids="[CALL_ID]" in template)
    if "<|python_tag|>" in template or "ipython" in template:
        return Llama3()
    if tokenizer.id_of(LIST_BEGIN) is not None:  # whose templates show no calls
        return Lfm2()
    return Hermes()


def _in_tags(template: str) -> ToolFormat:
    """Returns the format of a template with `<tool_call>` tags, by the tags inside them."""
    if "<arg_key>" in template:
        return Glm()
    return QwenCoder() if "<function=" in template and "<parameter=" in template else Hermes()
