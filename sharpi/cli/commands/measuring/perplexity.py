"""`sharpi perplexity`: the perplexity of a model on a text."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from sharpi.cli.command import Without
from sharpi.cli.options.inputs.model_path import model_path
from sharpi.cli.options.inputs.source_text import text_of_file
from sharpi.cli.output.loading import ProgressBar, open_engine
from sharpi.cli.run_config import complete
from sharpi.cli.shared_options import JsonOption
from sharpi.errors import UsageError
from sharpi.settings import RunConfig
from sharpi.settings.option import argument, local_option
from sharpi.settings.run import CONTEXT

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine
    from sharpi.engine.measure.perplexity import WindowScore


def perplexity(
    context: typer.Context,
    model: Annotated[str, argument("MODEL", "A GGUF file or a name.")],
    file: Annotated[
        str, local_option("-f --file", "The file with the text to predict; '-': stdin.", "FILE")
    ],
    config: Annotated[RunConfig, Without((CONTEXT,))],
    window: Annotated[int, local_option("-c --ctx-size", "Tokens per window.", "N", min=4)] = 512,
    as_json: JsonOption = False,
) -> None:
    """Print the perplexity of a text.

    The text is cut into windows; the second half of each is scored, given the first. With a type
    of keys and values other than f16 the same windows are computed with f16 as well: the KL
    divergence, and how often the most likely token is the same, show what the type costs.
    --kv-keep drops keys and values of the first half, and is compared with f16 in the same way.
    """
    config = replace(complete(context, config, model_path(model)), context_size=window)
    text = text_of_file(file)
    with open_engine(config) as engine, _f16_engine(config) as reference:
        score = _score(engine, text, window, reference)
    if as_json:
        print(json.dumps(_record(score, window)))
    else:
        print(
            f"perplexity {score.perplexity_so_far:.4f} +/- {score.error:.4f}"
            f" ({score.count} windows of {window})"
        )
        _print_loss(score)


@contextmanager
def _f16_engine(config: RunConfig) -> "Iterator[Engine | None]":
    """Yields an engine for the same model with all keys and values in f16.

    Yields None if `config` already stores all of them in f16.
    """
    types = {config.kv_type, config.key_type, config.value_type} - {None, "f16"}
    if not types and config.kv_keep is None:
        yield None
        return
    plain = replace(config, kv_type="f16", key_type=None, value_type=None, kv_keep=None)
    with open_engine(plain) as engine:
        yield engine


def _print_loss(score: "WindowScore") -> None:
    if score.loss is not None:
        print(
            f"against f16 keys and values, of perplexity {score.loss.reference_perplexity:.4f}:"
            f" KL divergence {score.loss.divergence:.6f},"
            f" first choice the same for {100 * score.loss.agreement:.2f} % of"
            f" {score.loss.num_tokens} tokens"
        )


def _score(engine: "Engine", text: str, window: int, reference: "Engine | None") -> "WindowScore":
    import numpy as np

    from sharpi.engine.measure.perplexity import perplexity_windows

    tokenizer = engine.tokenizer
    ids = tokenizer.encode(text, add_bos=tokenizer.add_bos, parse_special=False)
    last = None
    with ProgressBar() as bar:
        for score in perplexity_windows(engine, np.asarray(ids, np.int32), window, reference):
            last = score
            stage = f"window {score.index + 1} of {score.count}: {score.perplexity_so_far:.4f}"
            bar.show(stage, (score.index + 1) / score.count)
    if last is None:
        raise UsageError(f"the text has {len(ids)} tokens, fewer than one window of {window}")
    return last


def _record(score: "WindowScore", window: int) -> dict[str, float | int]:
    loss = score.loss
    compared: dict[str, float | int] = {}
    if loss is not None:
        compared = {
            "f16_perplexity": loss.reference_perplexity,
            "kl_divergence": loss.divergence,
            "same_first_choice": loss.agreement,
        }
    return compared | {
        "perplexity": score.perplexity_so_far,
        "error": score.error,
        "nll": score.nll,
        "windows": score.count,
        "window_size": window,
        "scored_tokens": score.num_tokens,
    }
