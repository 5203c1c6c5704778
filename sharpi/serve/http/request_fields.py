"""RequestFields: typed reads of a JSON object in a request, with a record of what was read.

A member that no one has read when `close` is called is a parameter that sharpi does not know; it is
refused.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

from sharpi.serve.http.errors import invalid_request

_TYPES = {bool: "a boolean", int: "an integer", str: "a string", dict: "an object", list: "a list"}


class RequestFields:
    """Reads the members of an object at `path` ("" is the body); null counts as absent.

    Every read raises ApiError, with the member's path as its parameter, for another type or a value
    out of range.
    """

    def __init__(self, value: object, path: str = "") -> None:
        if not isinstance(value, Mapping):
            what = f"'{path}'" if path else "the body"
            raise invalid_request(f"{what} must be a JSON object", param=path or None)
        self._values: Mapping[str, Any] = value
        self._unread = set(value)
        self.path = path

    def raw(self, name: str) -> Any:
        """Returns the JSON value of the member; None if it is absent."""
        self._unread.discard(name)
        return self._values.get(name)

    def path_of(self, name: str) -> str:
        """Returns the path of a member in the body."""
        return f"{self.path}.{name}" if self.path else name

    def fail(self, name: str, message: str) -> NoReturn:
        """Raises the ApiError of a member; `message` follows its path."""
        path = self.path_of(name)
        raise invalid_request(f"'{path}' {message}", param=path)

    def text(self, name: str) -> str | None:
        """Reads a string."""
        value: str | None = self._typed(name, str)
        return value

    def required_text(self, name: str) -> str:
        """Reads a string that must be present."""
        value = self.text(name)
        return self.fail(name, "is required") if value is None else value

    def flag(self, name: str) -> bool | None:
        """Reads a boolean."""
        value: bool | None = self._typed(name, bool)
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Reads an integer from `low` to `high`."""
        value: int | None = self._typed(name, int)
        return value if value is None else self._within(name, value, low, high)

    def number(self, name: str, low: float, high: float) -> float | None:
        """Reads a number from `low` to `high`."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(name, "must be a number")
        return float(self._within(name, value, low, high))

    def choice(self, name: str, allowed: Collection[str]) -> str | None:
        """Reads one of a few strings."""
        value = self.text(name)
        if value is not None and value not in allowed:
            self.fail(name, f"must be one of {', '.join(allowed)}, not '{value[:40]}'")
        return value

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        """Reads an object as it is."""
        value: Mapping[str, Any] | None = self._typed(name, dict)
        return value

    def fields(self, name: str) -> "RequestFields | None":
        """Reads an object as RequestFields."""
        value = self.mapping(name)
        return None if value is None else RequestFields(value, self.path_of(name))

    def items(self, name: str) -> list[Any] | None:
        """Reads a list as it is."""
        value: list[Any] | None = self._typed(name, list)
        return value

    def each(self, name: str) -> list["RequestFields"]:
        """Reads a list of objects as RequestFields; returns an empty list if it is absent."""
        path = self.path_of(name)
        items = self.items(name) or []
        return [RequestFields(item, f"{path}[{index}]") for index, item in enumerate(items)]

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """Reads a string or a list of up to `most` strings; drops empty ones."""
        value = self.raw(name)
        texts = [value] if isinstance(value, str) else value or []
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            self.fail(name, "must be a string or a list of strings")
        if len(texts) > most:
            self.fail(name, f"must have {most} strings at most")
        return tuple(text for text in texts if text)

    def ignore(self, *names: str) -> None:
        """Accepts members that do not affect an answer."""
        self._unread.difference_update(names)

    def only(self, name: str, neutral: Iterable[object], why: str) -> None:
        """Refuses a member unless it has one of the `neutral` values, which have no effect."""
        value = self.raw(name)
        if value is not None and not any(_same(value, each) for each in neutral):
            self.fail(name, f"cannot be honoured: {why}")

    def close(self) -> None:
        """Refuses members that were not read, unless they are null."""
        for name in sorted(self._unread):
            if self._values[name] is not None:
                path = self.path_of(name)[:80]
                message = f"unknown parameter: '{path}'"
                raise invalid_request(message, param=path, code="unknown_parameter")

    def _typed(self, name: str, kind: type) -> Any:
        value = self.raw(name)
        if value is None or (isinstance(value, kind) and isinstance(value, bool) <= (kind is bool)):
            return value
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        return self.fail(name, f"must be {_TYPES[kind]}")

    def _within(self, name: str, value: Any, low: float, high: float) -> Any:
        if not low <= value <= high:
            self.fail(name, f"must be from {low:g} to {high:g}")
        return value


def _same(value: object, other: object) -> bool:
    """Returns whether two values are equal in JSON, where true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)
