"""OpenJson: where in its document the end of an unfinished JSON text is."""

from collections.abc import Set

from msgspec import Struct, field

_QUOTE, _BACKSLASH, _COMMA = b'"'[0], b"\\"[0], b","[0]
_OBJECT, _ARRAY = b"{"[0], b"["[0]
_CLOSING = b"}]"


class _Open(Struct):
    """An object or array that has not ended."""

    is_object: bool
    is_watched: bool = False
    wants_name: bool = False  # the next string is the name of a property
    name: bytes = b""  # of the newest property, as it is spelled
    texts: set[bytes] = field(default_factory=set)  # the strings in a watched array


class OpenJson:
    """Reads valid JSON piece by piece; `names` are those of the arrays to watch, as spelled.

    The name of the document itself is empty.
    """

    def __init__(self, names: Set[bytes]) -> None:
        self._names = names
        self._open: list[_Open] = []
        self.text: bytearray | None = None  # the string that has not ended, without its quote
        self.is_after_backslash = False

    @property
    def texts(self) -> Set[bytes] | None:
        """The strings of the innermost array so far; None if it is not watched."""
        return self._open[-1].texts if self._open and self._open[-1].is_watched else None

    def read(self, data: bytes) -> None:
        """Goes on by some bytes."""
        for byte in data:
            if self.text is None:
                self._read_outside(byte)
            elif self.is_after_backslash or byte != _QUOTE:
                self.text.append(byte)
                self.is_after_backslash = byte == _BACKSLASH and not self.is_after_backslash
            else:
                self._end_text(bytes(self.text))

    def _end_text(self, text: bytes) -> None:
        self.text = None
        inner = self._open[-1] if self._open else None
        if inner is not None and inner.is_watched:
            inner.texts.add(text)
        elif inner is not None and inner.wants_name:
            inner.name, inner.wants_name = text, False

    def _read_outside(self, byte: int) -> None:
        if byte == _QUOTE:
            self.text = bytearray()
        elif byte == _OBJECT:
            self._open.append(_Open(is_object=True, wants_name=True))
        elif byte == _ARRAY:
            self._open.append(_Open(is_object=False, is_watched=self._is_watched()))
        elif byte in _CLOSING:
            self._open.pop()
        elif byte == _COMMA and self._open[-1].is_object:
            self._open[-1].wants_name = True

    def _is_watched(self) -> bool:
        """Returns whether an array that begins here is to be watched."""
        if not self._open:
            return b"" in self._names
        inner = self._open[-1]
        return inner.is_object and inner.name in self._names
