"""The alphabet of byte-level BPE: every byte as one printable character (GPT-2)."""

from functools import cache


@cache
def byte_of_character() -> dict[str, int]:
    """The byte behind each of the 256 characters."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return table


def bytes_of(text: str) -> bytes:
    """What a token's characters stand for; characters outside the alphabet are themselves."""
    table = byte_of_character()
    parts = (
        bytes([table[c]]) if c in table else c.encode("utf-8", "surrogateescape") for c in text
    )
    return b"".join(parts)
