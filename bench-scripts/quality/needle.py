"""Tests for each KV type whether a model finds a pass key hidden at three depths of a long text.

`python bench-scripts/quality/needle.py MODEL --text FILE -c 4096` prints the probability of the
pass key's digits, and whether each digit is the most probable token. `--keep N` does so with f16
and `--kv-keep N`, once with the question as the end of the prompt, and once with the question after
the prompt, most of whose keys and values have then been dropped.
"""

import argparse
from pathlib import Path

import numpy as np

from sharpi.engine.engine import Engine
from sharpi.engine.loader import load_engine
from sharpi.engine.measure.perplexity import token_losses
from sharpi.ops.cpu.kv_cache import KV_FORMATS
from sharpi.settings import KvType, RunConfig

_KEY = " 48151"
_NEEDLE = f"\n\nThe secret pass key is{_KEY}. Remember it. The secret pass key is{_KEY}.\n\n"
_QUESTION = "\n\nWhat is the secret pass key? The secret pass key is"


def _ids(engine: Engine, text: str) -> list[int]:
    return engine.tokenizer.encode(text, add_bos=False, parse_special=False)


def _score(
    engine: Engine, text: list[int], depth: float, context: int, *, asks_late: bool
) -> tuple[float, bool]:
    """Returns the pass key's probability, and whether each of its tokens is the most probable one.

    `depth`: the place of the pass key in the text, 0 to 1. `asks_late`: the question follows the
    prompt instead of ending it.
    """
    needle, question, key = (_ids(engine, part) for part in (_NEEDLE, _QUESTION, _KEY))
    room = context - len(needle) - len(question) - len(key)
    at = int(depth * room)
    ids = np.asarray([*text[:at], *needle, *text[at:room], *question, *key], np.int32)
    after = len(key) + (len(question) if asks_late else 0)
    logits = engine.logits(ids, len(ids) - after)[-len(key) - 1 : -1]
    targets = ids[-len(key) :]
    is_first = bool((logits.argmax(axis=1) == targets).all())
    return float(np.exp(-token_losses(logits, targets).sum())), is_first


def _config(options: argparse.Namespace, kind: KvType, kept: int | None) -> RunConfig:
    return RunConfig(
        model=options.model, context_size=options.context, kv_type=kind, kv_keep=kept, device="cpu"
    )


def _show(options: argparse.Namespace, kind: KvType, kept: int | None) -> None:
    with load_engine(_config(options, kind, kept)) as engine:
        text = _ids(engine, options.text.read_text("utf-8"))
        for asks_late in (False,) if kept is None else (False, True):
            scores = [
                _score(engine, text, depth, options.context, asks_late=asks_late)
                for depth in options.depths
            ]
            name = kind if kept is None else f"keep {kept}{' late' * asks_late}"
            shown = "  ".join(f"{p:.3f} {'found' if found else 'missed'}" for p, found in scores)
            print(f"{name:14} {shown}", flush=True)


def main() -> None:
    """Parses the command line and prints a line for each KV type and for each `--keep`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("-c", "--context", type=int, default=4096)
    parser.add_argument("--depths", type=float, nargs="*", default=[0.1, 0.5, 0.9])
    parser.add_argument("--types", nargs="*", default=list(KV_FORMATS))
    parser.add_argument("--keep", type=int, nargs="*", default=[])
    options = parser.parse_args()
    for kind in options.types:
        _show(options, kind, None)
    for kept in options.keep:
        _show(options, "f16", kept)


if __name__ == "__main__":
    main()
