"""CostlySchemas: rewrites, in a child process, JSON schemas that become many others.

In the server's process this would hold Python's interpreter for a fifth of a second, and delay
every other request.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from sharpi.constraints.children import CPU_SECONDS, Children, answer_parent, ask_child
from sharpi.constraints.schema.budget import MAX_SCHEMAS
from sharpi.constraints.schema.json_schema import as_json, grammar_of_schema
from sharpi.errors import GrammarError

_MAX_REMEMBERED = 64
_TOO_COMPLEX = f"the JSON schema is too complex to be rewritten within {CPU_SECONDS} s and 1 GiB"


class CostlySchemas:
    """Rewrites costly schemas, and caches the newest few dozen results; any thread may use it."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._known: OrderedDict[bytes, dict[str, str]] = OrderedDict()

    def grammar(self, schema: Mapping[str, Any], *, splits_one_of: bool) -> str:
        """Returns the grammar of a schema; raises GrammarError and BusyError."""
        text = as_json({"schema": schema, "splits_one_of": splits_one_of})
        key = sha256(text.encode()).digest()
        found = self._known.get(key) or self._ask(key, text)
        if "grammar" not in found:
            raise GrammarError(found["refusal"])
        return found["grammar"]

    def _ask(self, key: bytes, text: str) -> dict[str, str]:
        with self._children.turn():
            found = self._known.get(key)
            if found is None:
                found = ask_child(__spec__.name, text) or {"refusal": _TOO_COMPLEX}
                self._known[key] = found
            while len(self._known) > _MAX_REMEMBERED:
                self._known.popitem(last=False)
            return found


def _answer(text: str) -> dict[str, str]:
    asked = json.loads(text)
    try:
        grammar = grammar_of_schema(
            asked["schema"], splits_one_of=asked["splits_one_of"], most=MAX_SCHEMAS
        )
    except GrammarError as error:
        return {"refusal": str(error)}
    return {"grammar": grammar}


if __name__ == "__main__":
    answer_parent(_answer)
