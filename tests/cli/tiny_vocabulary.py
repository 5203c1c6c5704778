"""A GGUF file with nothing but a vocabulary: the 256 bytes, one merge and one special token."""

from pathlib import Path

from gguf import GGUFWriter, TokenType

SPECIAL = "<|end|>"
BOS_ID, MERGED_ID, SPECIAL_ID = 257, 256, 257


def byte_letters() -> list[str]:
    """Returns GPT-2's letter for each byte, in byte order."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [each for each in range(256) if each not in shown]
    letters = dict(zip(shown, map(chr, shown), strict=True))
    letters |= {byte: chr(256 + index) for index, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]


def write_vocabulary(path: Path, *, add_bos: bool, template: str | None = None) -> Path:
    """Writes ids 0-255 for the bytes, 256 for "ab" and 257 for the special token, which is also
    BOS.
    """
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*byte_letters(), "ab", SPECIAL])
    writer.add_token_types([TokenType.NORMAL] * 257 + [TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(SPECIAL_ID)
    writer.add_add_bos_token(add_bos)
    if template is not None:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
