"""Closing: the base of classes that a `with` statement closes, as it does files."""

from abc import abstractmethod
from types import TracebackType
from typing import Self


class Closing:
    """The base of classes that `close` ends."""

    @abstractmethod
    def close(self) -> None:
        """Ends the object; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
