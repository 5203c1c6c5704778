"""The instruction about tools, for models whose chat template does not show tools."""

import json
from collections.abc import Sequence

from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool

_INSTRUCTION = """\
# Tools

You may call functions. These are the functions, each with the JSON schema of its parameters:

<tools>
{tools}
</tools>

To call one, write exactly this, with the function's own name and arguments:

{sample}"""
_SAMPLE = [("function_name", {"argument_name": "value"})]


def tool_instruction(form: ToolFormat, tools: Sequence[Tool]) -> str:
    """Returns text for the system message that lists the tools and shows how to call one."""
    lines = [json.dumps(tool_object(tool), ensure_ascii=False) for tool in tools]
    return _INSTRUCTION.format(tools="\n".join(lines), sample=form.write(_SAMPLE))


def tool_object(tool: Tool) -> dict[str, object]:
    """Returns the tool as a JSON object of the OpenAI API, the form that templates expect."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}
