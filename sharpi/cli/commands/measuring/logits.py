"""`sharpi logits`: teacher-forced logits of given token ids, for checks against other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from sharpi.cli.command import Without
from sharpi.cli.options.inputs.model_path import model_path
from sharpi.cli.output.loading import open_engine
from sharpi.cli.output.output_files import refuse_to_replace, refuse_unwritable
from sharpi.cli.output.terminal import print_stderr
from sharpi.cli.run_config import complete
from sharpi.errors import UsageError
from sharpi.settings import RunConfig
from sharpi.settings.option import argument, local_option
from sharpi.settings.run import CONTEXT
from sharpi.system.files import atomic_output

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def logits(
    context: typer.Context,
    model: Annotated[str, argument("MODEL", "A GGUF file or a name.")],
    tokens: Annotated[
        Path, local_option("--tokens", "A 1-D array of integer token ids.", "IDS.npy")
    ],
    output: Annotated[
        Path,
        local_option("--output", "Output file: float32 logits (tokens, vocabulary).", "OUT.npy"),
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
    refuse_to_replace("--output", output, (tokens, path))
    refuse_unwritable("--output", output)
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
