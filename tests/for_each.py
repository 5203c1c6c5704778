"""Calls a test for many values: thousands of tests of their own take long to collect and report."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any


def for_each(names: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Gives each value to the test in turn, as pytest's `parametrize` does to tests of their own.

    Several names, with commas between them, take a tuple each. What fails says at which value.
    """
    own, every = names.replace(" ", "").split(","), tuple(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def calls(**others: Any) -> None:
            for value in every:
                try:
                    test(**others, **dict(zip(own, value if own[1:] else [value], strict=True)))
                except BaseException as error:
                    error.add_note(f"{names}: {value!r}")
                    raise

        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in own]
        calls.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return calls

    return decorate
