"""`sharpi tokenize`, `logits` and `perplexity`: what a model makes of a given text."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from sharpi.cli.inputs import STDIN, JsonOption, text_of_argument, text_of_file
from sharpi.cli.model_path import model_path
from sharpi.cli.output.loading import ProgressBar, open_engine
from sharpi.cli.output.terminal import print_note, print_stderr, stdin_is_terminal
from sharpi.cli.run_config import complete, refuse_output
from sharpi.errors import UsageError
from sharpi.settings import RunConfig
from sharpi.settings.option import Option, Without, local_option
from sharpi.settings.run import CONTEXT
from sharpi.system.files import atomic_output

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from sharpi.engine.engine import Engine
    from sharpi.engine.measure.perplexity import WindowScore


def logits(
    context: typer.Context,
    model: Annotated[str, Option("MODEL", "A GGUF file or a name.")],
    tokens: Annotated[Path, local_option("--tokens IDS.npy", "A 1-D array of integer token ids.")],
    output: Annotated[
        Path, local_option("--output OUT.npy", "Output file: float32 logits (tokens, vocabulary).")
    ],
    config: Annotated[RunConfig, Without((CONTEXT,))],
) -> None:
    """Write the logits of given token ids.

    Row i holds the logits after token i, teacher-forced: no text, no template, no sampling.
    """
    import numpy as np

    ids = read_ids(tokens)
    path = model_path(model)
    config = replace(complete(context, config, path), context_size=len(ids))
    refuse_output("--output", output, (tokens, path))
    if output.exists() and not output.is_file():
        raise UsageError(f"cannot write {output}: it is not a regular file")
    with open_engine(config) as engine:
        values = engine.logits(ids.astype(np.int32))
    try:
        with atomic_output(output) as file:
            np.save(file, values)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
    print_stderr(f"wrote {output}: float32 {values.shape}")


def read_ids(path: Path) -> "npt.NDArray[np.integer]":
    """Returns the token ids of an .npy file, shape (tokens,); raises UsageError for other files.

    The file is mapped, so that a header with a wrong length is found before memory is allocated.
    """
    import numpy as np

    if path.is_fifo():
        raise UsageError(f"{path} is a pipe; --tokens takes a file, saved with numpy.save")
    try:
        ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # the header is parsed as Python, which raises many kinds of errors
        raise UsageError(f"{path} is not a NumPy array file: {error}") from error
    if not isinstance(ids, np.ndarray):
        raise UsageError(f"{path} holds several arrays; --tokens takes one, saved with numpy.save")
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
        raise UsageError(
            f"{path} holds {ids.dtype} {ids.shape}; --tokens takes integers (tokens,), at least one"
        )
    if ids.max() > np.iinfo(np.int32).max:
        raise UsageError(f"{path} holds id {ids.max()}; no model has that many tokens")
    return ids


def tokenize(
    model: Annotated[str, Option("MODEL", "A GGUF file or a name.")],
    text: Annotated[
        str | None, Option("TEXT", "The text; '-' or nothing reads stdin byte for byte.")
    ] = None,
    no_bos: Annotated[
        bool, local_option("--no-bos", "Add no BOS token, even if the model expects one.")
    ] = False,
    no_special: Annotated[
        bool, local_option("--no-special", "Treat special tokens in the text as plain text.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the ids of a text.

    The ids are on one line, separated by spaces.
    """
    from sharpi.gguf.reader import open_gguf
    from sharpi.tokenizer.tokenizer import load_tokenizer

    content = _content(text)
    with open_gguf(model_path(model)) as file:
        tokenizer = load_tokenizer(file.metadata)
    for warning in tokenizer.notes:
        print_note(warning)
    add_bos = tokenizer.add_bos and not no_bos
    ids = tokenizer.encode(content, add_bos=add_bos, parse_special=not no_special)
    print(json.dumps({"ids": ids}) if as_json else " ".join(map(str, ids)))


def _content(text: str | None) -> str:
    if text is not None and text != STDIN:
        return text_of_argument(text, "TEXT")
    if text is None and stdin_is_terminal():
        raise UsageError("no text; give one as TEXT or on stdin")
    return text_of_file(STDIN)


def perplexity(
    context: typer.Context,
    model: Annotated[str, Option("MODEL", "A GGUF file or a name.")],
    file: Annotated[
        str, local_option("-f --file FILE", "The file with the text to predict; '-': stdin.")
    ],
    config: Annotated[RunConfig, Without((CONTEXT,))],
    window: Annotated[int, local_option("-c --ctx-size N", "Tokens per window.", min=4)] = 512,
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
    """Yields an engine with keys and values in f16; None if `config` has all of them in f16."""
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
