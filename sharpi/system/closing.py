"""Closing: the base of classes with a `close` method that can be used in a `with` statement."""

from abc import abstractmethod
from types import TracebackType
from typing import Self


class Closing:
    """A context manager that calls `close` at the end of the `with` statement."""

    @abstractmethod
    def close(self) -> None:
        """Frees the resources of the object; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
