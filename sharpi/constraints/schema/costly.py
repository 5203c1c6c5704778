"""CostlySchemas: rewrites large JSON schemas in a child process.

In the server's process the rewriting would hold the GIL for a fifth of a second and delay every
other request.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from sharpi.constraints.child_processes import (
    CPU_SECONDS,
    ChildProcesses,
    ChildResultCache,
    run_child,
    serve_parent,
)
from sharpi.constraints.schema.budget import MAX_SCHEMAS
from sharpi.constraints.schema.json_schema import RewritingOptions, as_json, grammar_of_schema
from sharpi.errors import GrammarError

_MAX_REMEMBERED = 64
_TOO_COMPLEX = f"the JSON schema is too complex to be rewritten within {CPU_SECONDS} s and 1 GiB"


class CostlySchemas:
    """Rewrites costly schemas and caches the newest 64 results; any thread may call it."""

    def __init__(self, children: ChildProcesses) -> None:
        self._known = ChildResultCache[dict[str, str]](children, _MAX_REMEMBERED)

    def grammar(self, schema: Mapping[str, Any], options: RewritingOptions) -> str:
        """Returns llguidance's grammar of a schema.

        Raises GrammarError if it cannot be rewritten, BusyError if too many threads wait.
        """
        text = as_json({"schema": schema, "options": asdict(options)})
        found = self._known.get(text, _rewritten)
        if "grammar" not in found:
            raise GrammarError(found["refusal"])
        return found["grammar"]


def _rewritten(text: str) -> dict[str, str]:
    """Returns a child process's result: a `grammar`, or the error message as `refusal`."""
    found: dict[str, str] | None = run_child(__spec__.name, text)
    return found or {"refusal": _TOO_COMPLEX}


def _compute(text: str) -> dict[str, str]:
    asked = json.loads(text)
    try:
        grammar = grammar_of_schema(
            asked["schema"], RewritingOptions(**asked["options"]), MAX_SCHEMAS
        )
    except GrammarError as error:
        return {"refusal": str(error)}
    return {"grammar": grammar}


if __name__ == "__main__":
    serve_parent(_compute)
