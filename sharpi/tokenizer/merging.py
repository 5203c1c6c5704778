"""The two ways words become tokens, built on the `tokenizers` library.

`byte_level` is GPT-2's byte-pair encoding. `sentence_piece` is SentencePiece's: pieces with scores,
the best-scored pair of neighbours merged first, unknown characters as bytes.
"""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from sharpi.tokenizer.pre_tokenizers import PreTokenizer
from sharpi.tokenizer.vocabulary import Vocabulary

SPACE_MARK = "\u2581"


def byte_level(vocabulary: Vocabulary, rules: PreTokenizer) -> Tokenizer:
    """Words by the pre-tokenizer's rules, bytes as characters, merges by rank."""
    merges = [tuple(merge.split(" ", 1)) for merge in vocabulary.merges if " " in merge]
    known = _ids(vocabulary)
    usable = [m for m in merges if m[0] in known and m[1] in known and m[0] + m[1] in known]
    tokenizer = Tokenizer(models.BPE(known, usable, ignore_merges=rules.whole_words))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rules.patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentence_piece(vocabulary: Vocabulary) -> Tokenizer:
    """Spaces as U+2581, the whole text one word."""
    known = _ids(vocabulary)
    unknown = vocabulary.id_of("unknown")
    model = models.BPE(
        known,
        score_merges(vocabulary),
        byte_fallback=True,
        fuse_unk=False,
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE_MARK)
    return tokenizer


def score_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every way two pieces make a third, the third's best score first."""
    score_of = dict(zip(vocabulary.tokens, vocabulary.scores, strict=True))
    found: list[tuple[float, int, str, str]] = []
    for rank, (piece, score) in enumerate(score_of.items()):
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in score_of and right in score_of:
                found.append((-score, rank, left, right))
    found.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in found]


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    """Id of each text; of tokens with the same text the first counts."""
    ids: dict[str, int] = {}
    for token_id, text in enumerate(vocabulary.tokens):
        ids.setdefault(text.encode("utf-8", "replace").decode("utf-8"), token_id)
    return ids
