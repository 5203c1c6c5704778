"""`sharpi logits`: teacher-forced logits of given token ids, for checks against other programs."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from sharpi.cli.loading import open_engine
from sharpi.cli.machine_options import MachineOptions
from sharpi.cli.terminal import say
from sharpi.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def logits(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A GGUF file.")],
    tokens: Annotated[
        Path, typer.Option("--tokens", metavar="IDS.npy", help="A 1-D array of integer token ids.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", metavar="OUT.npy", help="Gets float32 logits (tokens, vocabulary)."
        ),
    ],
    machine: MachineOptions,
) -> None:
    """Write the logits of given token ids.

    Row i holds what follows token i, teacher-forced: no text, no template, no sampling.
    """
    import numpy as np

    ids = read_ids(tokens)
    refuse_to_replace(output, (tokens, model))
    with written_whole(output) as file:
        with open_engine(machine.run_config(model, context_size=len(ids))) as engine:
            values = engine.logits(ids.astype(np.int32))
        try:
            np.save(file, values)
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror}") from error
    say(f"wrote {output}: float32 {values.shape}")


def read_ids(path: Path) -> "npt.NDArray[np.integer]":
    """The ids (tokens,) of an .npy file; raises UsageError for anything else.

    The file is mapped: a header that lies about its length is found out before memory is taken.
    """
    import numpy as np

    try:
        ids = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # a header is parsed as Python; errors are of many kinds
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


def refuse_to_replace(output: Path, inputs: Sequence[Path]) -> None:
    """Raises UsageError where the output is one of the files that are read."""
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise UsageError(f"--output {output} would replace the input {path}; name another file")


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well, and leaves no trace if not.

    Raises UsageError at once where it cannot be written, before the work for it is done.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write {path}: it is not a regular file")
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=target.name)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o666 & ~_umask())
            yield file
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


def _umask() -> int:
    """The process's umask, which temporary files ignore; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
