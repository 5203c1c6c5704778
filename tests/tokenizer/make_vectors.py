"""Writes vectors.json: small vocabularies, and the ids that llama.cpp gives the nasty texts.

Needs llama-cpp-python and gguf; vectors.json says which versions made it. Run it here:

    python make_vectors.py
"""

import json
import random
import tempfile
from collections import Counter
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, TokenType
from llama_cpp import Llama
from nasty_texts import SPECIAL_TEXTS, TEXTS

HERE = Path(__file__).parent
SEED = 20240
NUM_MERGES = 420
NUM_PIECES = 420
# One name of each set of rules; the other names are aliases.
PRE_TOKENIZERS = (
    "default", "gpt-2", "llama-bpe", "chatglm-bpe", "qwen2", "qwen35", "smollm", "deepseek-llm",
    "deepseek-coder", "deepseek-v3", "falcon", "tekken", "gpt-4o", "poro-chat", "viking",
    "minicpm5", "seed-coder", "exaone-moe", "bailingmoe", "laguna",
)  # fmt: skip
SPECIALS = (
    ("<unk>", TokenType.UNKNOWN),
    ("<s>", TokenType.CONTROL),
    ("</s>", TokenType.CONTROL),
    ("<|im_start|>", TokenType.CONTROL),
    ("<|im_end|>", TokenType.NORMAL),
    ("<tool>", TokenType.USER_DEFINED),
    ("<think>", TokenType.USER_DEFINED),
    ("</think>", TokenType.USER_DEFINED),
)
SPACE_MARK = "\u2581"


def byte_letters() -> list[str]:
    """Returns GPT-2's letter for each byte, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [
        chr(byte) if byte in printable else chr(0x100 + others.index(byte)) for byte in range(256)
    ]


def byte_level_vocabulary() -> dict[str, Any]:
    """Returns merges learned across word boundaries, so that every wrong split changes the ids."""
    letters = byte_letters()
    corpus = [[letters[byte] for byte in text.encode()] for text in TEXTS]
    merges: list[str] = []
    for _ in range(NUM_MERGES):
        pairs = Counter(pair for word in corpus for pair in pairwise(word))
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(f"{left} {right}")
        corpus = [merged(word, left, right) for word in corpus]
    tokens = [text for text, _ in SPECIALS] + letters
    tokens += [merge.replace(" ", "") for merge in merges]
    kinds = [int(kind) for _, kind in SPECIALS] + [1] * (len(tokens) - len(SPECIALS))
    unique = dict(zip(tokens, kinds, strict=True))
    return {"tokens": list(unique), "kinds": list(unique.values()), "merges": merges}


def merged(word: list[str], left: str, right: str) -> list[str]:
    """Returns the word with each occurrence of the pair joined, from the left."""
    joined: list[str] = []
    for letter in word:
        if joined and joined[-1] == left and letter == right:
            joined[-1] = left + right
        else:
            joined.append(letter)
    return joined


def sentence_piece_vocabulary(*, across_words: bool) -> dict[str, Any]:
    """Returns random pieces of the texts with scores that often tie.

    Rare characters are only in it as bytes.
    """
    token_sampler = random.Random(SEED + across_words)
    texts = [text.replace(" ", SPACE_MARK) for text in TEXTS if len(text) > 8]
    pieces: dict[str, float] = {character: -1000.0 for text in texts[:20] for character in text}
    runs = "=-_.0a" + SPACE_MARK
    pieces |= {run * count: -float(count % 3) for run in runs for count in (2, 3, 4, 6)}
    while len(pieces) < NUM_PIECES:
        text = token_sampler.choice(texts)
        start, length = token_sampler.randrange(len(text)), token_sampler.randint(2, 4)
        piece = text[start : start + length]
        if across_words or SPACE_MARK not in piece.lstrip(SPACE_MARK):
            pieces.setdefault(piece, float(token_sampler.randint(-40, 0)))
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [text for text, _ in SPECIALS] + byte_tokens + list(pieces)
    kinds = [int(kind) for _, kind in SPECIALS] + [6] * 256 + [1] * len(pieces)
    scores = [0.0] * (len(SPECIALS) + 256) + list(pieces.values())
    return {"tokens": tokens, "kinds": kinds, "scores": scores}


def write_gguf(path: Path, vocabulary: dict[str, Any], **options: Any) -> None:
    """Writes a file with only a vocabulary and the metadata that llama.cpp requires."""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2" if "merges" in vocabulary else "llama")
    writer.add_tokenizer_pre(options.get("pre", "default"))
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["kinds"])
    if "merges" in vocabulary:
        writer.add_token_merges(vocabulary["merges"])
    else:
        writer.add_token_scores(vocabulary["scores"])
        writer.add_add_space_prefix(options["add_space_prefix"])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def ids_of_llama_cpp(vocabulary: dict[str, Any], **options: Any) -> dict[str, list[list[int]]]:
    """Returns the ids of every text without BOS, with special tokens parsed and not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary.gguf"
        write_gguf(path, vocabulary, **options)
        model = Llama(str(path), vocab_only=True, verbose=False)

    def ids(texts: tuple[str, ...], special: bool) -> list[list[int]]:
        return [model.tokenize(text.encode(), add_bos=False, special=special) for text in texts]

    return {
        "texts": ids(TEXTS, False),
        "special_parsed": ids(SPECIAL_TEXTS, True),
        "special_plain": ids(SPECIAL_TEXTS, False),
    }


def main() -> None:
    byte_level = byte_level_vocabulary()
    by_words = sentence_piece_vocabulary(across_words=False)
    across = sentence_piece_vocabulary(across_words=True)
    vectors = {
        "made_with": {name: version(name) for name in ("llama-cpp-python", "gguf")},
        "vocabularies": {"byte_level": byte_level, "by_words": by_words, "across": across},
        "byte_level": {pre: ids_of_llama_cpp(byte_level, pre=pre) for pre in PRE_TOKENIZERS},
        "sentence_piece": {
            f"{name} {'with' if prefix else 'without'} prefix": ids_of_llama_cpp(
                vocabulary, add_space_prefix=prefix
            )
            for name, vocabulary in (("by_words", by_words), ("across", across))
            for prefix in (True, False)
        },
    }
    text = json.dumps(vectors, ensure_ascii=True, separators=(",", ":"))
    (HERE / "vectors.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
