"""CostlySchemas: rewrites, in a child process, JSON schemas that become many others.

In the server's process this would hold Python's interpreter for a fifth of a second, and delay
every other request.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from sharpi.constraints.children import (
    CPU_SECONDS,
    ChildAnswers,
    Children,
    answer_parent,
    ask_child,
)
from sharpi.constraints.schema.budget import MAX_SCHEMAS
from sharpi.constraints.schema.json_schema import Ways, as_json, grammar_of_schema
from sharpi.errors import GrammarError

_MAX_REMEMBERED = 64
_TOO_COMPLEX = f"the JSON schema is too complex to be rewritten within {CPU_SECONDS} s and 1 GiB"


class CostlySchemas:
    """Rewrites costly schemas, and caches the newest few dozen results; any thread may use it."""

    def __init__(self, children: Children) -> None:
        self._known = ChildAnswers[dict[str, str]](children, _MAX_REMEMBERED)

    def grammar(self, schema: Mapping[str, Any], ways: Ways) -> str:
        """Returns the grammar of a schema; raises GrammarError and BusyError."""
        text = as_json({"schema": schema, "ways": asdict(ways)})
        found = self._known.get(text, _rewritten)
        if "grammar" not in found:
            raise GrammarError(found["refusal"])
        return found["grammar"]


def _rewritten(text: str) -> dict[str, str]:
    """Returns a child's answer: the grammar, or why the schema is refused."""
    found: dict[str, str] | None = ask_child(__spec__.name, text)
    return found or {"refusal": _TOO_COMPLEX}


def _answer(text: str) -> dict[str, str]:
    asked = json.loads(text)
    try:
        grammar = grammar_of_schema(asked["schema"], Ways(**asked["ways"]), MAX_SCHEMAS)
    except GrammarError as error:
        return {"refusal": str(error)}
    return {"grammar": grammar}


if __name__ == "__main__":
    answer_parent(_answer)
