"""KeyedArguments: a call's arguments that come as keys and bare values, passed on as JSON."""

import json
from collections.abc import Collection, Iterator

from sharpi.dialogue.calls import Calls
from sharpi.dialogue.events import AnswerEvent, CallArguments
from sharpi.dialogue.source import Source, Steps
from sharpi.dialogue.typed_value import is_text, json_text, property_schema


class KeyedArguments:
    """Those of the newest call; strings stream."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls, self._tool = calls, calls.tools.get(name)
        self._count = 0

    def pass_value(self, source: Source, key: str, closings: Collection[str]) -> Steps[bool]:
        """Passes on the value of a key up to one of the closings; False: the answer ends inside."""
        opening = "{" if self._count == 0 else ", "
        self._count += 1
        yield self._calls.arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
        schema = property_schema(self._tool, key)
        if not is_text(schema):
            text, closing = yield from source.read_until(closings)
            yield self._calls.arguments(json_text(text, schema))
            return closing is not None
        yield self._calls.arguments('"')
        closing = yield from source.pass_until(closings, self._escaped)
        if closing is None:
            return False
        yield self._calls.arguments('"')
        return True

    def end(self) -> Iterator[AnswerEvent]:
        """After the last of them."""
        yield self._calls.arguments("}" if self._count else "{}")

    def _escaped(self, text: str) -> CallArguments:
        return self._calls.arguments(json.dumps(text, ensure_ascii=False)[1:-1])
