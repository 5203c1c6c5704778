"""`sharpi perplexity`: the perplexity of a model on a text."""

import json
from typing import TYPE_CHECKING, Annotated

import click

from sharpi.cli.options.engine import EngineOptions
from sharpi.cli.options.json_output import JsonOption
from sharpi.cli.options.model_path import model_path
from sharpi.cli.options.option import argument, local_option
from sharpi.cli.options.source_text import text_of_file
from sharpi.cli.output.loading import ProgressBar, open_engine
from sharpi.errors import UsageError

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine
    from sharpi.engine.measure.perplexity import WindowScore


def perplexity(
    context: click.Context,
    model: Annotated[str, argument("MODEL", "A GGUF file or a name.")],
    file: Annotated[str, local_option("-f --file", "The text to predict; '-': stdin.", "TEXT")],
    engine_options: EngineOptions,
    window: Annotated[int, local_option("-c --ctx-size", "Tokens per window.", "N", min=4)] = 512,
    as_json: JsonOption = False,
) -> None:
    """Print the perplexity of a text.

    The text is cut into windows; the second half of each is scored, given the first.
    """
    config = engine_options.run_config(context, model_path(model), context_size=window)
    text = text_of_file(file)
    with open_engine(config) as engine:
        score = _score(engine, text, window)
    if as_json:
        print(json.dumps(_record(score, window)))
    else:
        print(
            f"perplexity {score.perplexity_so_far:.4f} +/- {score.error:.4f}"
            f" ({score.count} windows of {window})"
        )


def _score(engine: "Engine", text: str, window: int) -> "WindowScore":
    import numpy as np

    from sharpi.engine.measure.perplexity import perplexity_windows

    tokenizer = engine.tokenizer
    ids = tokenizer.encode(text, add_bos=tokenizer.add_bos, parse_special=False)
    last = None
    with ProgressBar() as bar:
        for score in perplexity_windows(engine, np.asarray(ids, np.int32), window):
            last = score
            stage = f"window {score.index + 1} of {score.count}: {score.perplexity_so_far:.4f}"
            bar.show(stage, (score.index + 1) / score.count)
    if last is None:
        raise UsageError(f"the text has {len(ids)} tokens, fewer than one window of {window}")
    return last


def _record(score: "WindowScore", window: int) -> dict[str, float | int]:
    return {
        "perplexity": score.perplexity_so_far,
        "error": score.error,
        "nll": score.nll,
        "windows": score.count,
        "window_size": window,
        "scored_tokens": score.num_tokens,
    }
