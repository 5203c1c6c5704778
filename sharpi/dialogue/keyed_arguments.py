"""KeyedArguments: converts a call's keys and unquoted values to JSON."""

import json
from collections.abc import Collection, Iterator

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.events import AnswerEvent
from sharpi.dialogue.json_object import pass_text
from sharpi.dialogue.typed_value import is_text, json_text, property_schema


class KeyedArguments:
    """Converts the arguments of the newest call to JSON events; strings stream as they arrive."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls, self._tool = calls, calls.tools.get(name)
        self._count = 0

    def pass_value(self, source: AnswerText, key: str, closings: Collection[str]) -> Steps[bool]:
        """Yields a key, and the value that is read up to one of the closing tags, as JSON events.

        Returns False if the answer ends before a closing tag.
        """
        opening = "{" if self._count == 0 else ", "
        self._count += 1
        yield self._calls.arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
        schema = property_schema(self._tool, key)
        if not is_text(schema):
            text, closing = yield from source.read_until(closings)
            yield self._calls.arguments(json_text(text, schema))
            return closing is not None
        return (yield from pass_text(source, self._calls.arguments, closings))

    def end(self) -> Iterator[AnswerEvent]:
        """Yields the event that closes the JSON object after the last argument."""
        yield self._calls.arguments("}" if self._count else "{}")
