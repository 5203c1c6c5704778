"""Trace: recorded routes, the experts that each token used in each layer, read from an .npz file.

The array `experts` (tokens, layers, k) is required; `lengths` (generations,) has the decoded tokens
of each generation. The prompts of the generations are in `prompt_experts` (prompt tokens, layers,
k), `prompt_lengths` (generations,), `prompt_batches` (steps,) and `prompt_positions`
(generations,). trace_writer.py writes such files.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from sharpi.errors import TraceFileError


class Steps(Struct, frozen=True):
    """The routes of consecutive steps; a step has one decoded token, or a batch of a prompt."""

    routes: NDArray[np.int32]  # (tokens, layers, k)
    sizes: NDArray[np.int64]  # (steps,) tokens of each step
    starts: NDArray[np.bool_]  # (steps,) True if a new text begins


def decoded_steps(routes: NDArray[np.int32], lengths: NDArray[np.int64]) -> Steps:
    """Returns the steps of decoded tokens, without prompts; `lengths` has each text's tokens."""
    starts = np.zeros(len(routes), np.bool_)
    begins = (np.cumsum(lengths) - lengths)[lengths > 0]
    starts[begins] = True
    return Steps(np.ascontiguousarray(routes), np.ones(len(routes), np.int64), starts)


class Prompts(Struct, frozen=True):
    """The routes of each text's prompt; a text may continue the sequence of the text before it."""

    routes: NDArray[np.int32]  # (tokens, layers, k)
    lengths: NDArray[np.int64]  # (texts,)
    batches: NDArray[np.int64]  # (steps,) tokens of each step
    # (texts,) position of the first token in its sequence, 0 in a new one.
    positions: NDArray[np.int64]

    def first(self, texts: int) -> "Prompts":
        """Returns the prompts of the first `texts` texts."""
        lengths = self.lengths[:texts]
        tokens = int(lengths.sum())
        steps = int(np.searchsorted(np.cumsum(self.batches), tokens, side="left")) + (tokens > 0)
        return Prompts(self.routes[:tokens], lengths, self.batches[:steps], self.positions[:texts])


def run_steps(routes: NDArray[np.int32], lengths: NDArray[np.int64], prompts: Prompts) -> Steps:
    """Returns the steps of each text: first its prompt in batches, then its decoded tokens."""
    ends = np.cumsum(prompts.batches)
    parts, sizes, starts = list[NDArray[np.int32]](), list[int](), list[bool]()
    decoded = prompted = step = 0
    for length, prompt, position in zip(lengths, prompts.lengths, prompts.positions, strict=True):
        parts += [prompts.routes[prompted : prompted + prompt], routes[decoded : decoded + length]]
        decoded, prompted, first = decoded + length, prompted + prompt, step
        step = int(np.searchsorted(ends, prompted, side="right"))
        text = [*prompts.batches[first:step].tolist(), *[1] * length]
        sizes += text
        starts += [i == 0 and position == 0 for i in range(len(text))]
    together = np.ascontiguousarray(np.concatenate(parts), np.int32)
    return Steps(together, np.array(sizes, np.int64), np.array(starts, np.bool_))


class Trace(Struct, frozen=True):
    """The routes of decoded tokens, with the best expert first, and of prompts if recorded."""

    routes: NDArray[np.int32]  # (tokens, layers, k)
    lengths: NDArray[np.int64]  # (generations,) in tokens
    num_experts: int
    expert_bytes: NDArray[np.int64] | None = None  # (layers,); None if the file does not have them
    prompts: Prompts | None = None  # None if the file does not have them

    @property
    def num_tokens(self) -> int:
        return int(self.routes.shape[0])

    @property
    def num_layers(self) -> int:
        return int(self.routes.shape[1])

    @property
    def experts_per_token(self) -> int:
        return int(self.routes.shape[2])

    @property
    def steps(self) -> Steps:
        """The steps of prompts and decoded tokens, in the order in which they ran."""
        if self.prompts is None:
            return decoded_steps(self.routes, self.lengths)
        return run_steps(self.routes, self.lengths, self.prompts)

    def first(self, tokens: int) -> "Trace":
        """Returns the first part of the trace, with at most `tokens` decoded tokens."""
        ends = np.cumsum(self.lengths)
        texts = int((ends - self.lengths < tokens).sum())
        return replace(
            self,
            routes=self.routes[:tokens],
            lengths=np.diff(np.minimum(ends[:texts], tokens), prepend=0),
            prompts=self.prompts and self.prompts.first(texts),
        )


def read_trace(path: Path) -> Trace:
    """Reads and checks the trace in a file; raises TraceFileError if it is not a valid trace."""
    from zipfile import BadZipFile

    try:
        if path.is_fifo():  # reading a pipe would wait, and a pipe cannot be searched
            raise TraceFileError(f"{path}: a pipe, not an .npz file; --moe-trace records one")
        arrays = np.load(path, allow_pickle=False)
        if not isinstance(arrays, np.lib.npyio.NpzFile):
            raise TraceFileError(f"{path}: not an .npz file but a single array")
        with arrays:
            return _trace(path, {name: arrays[name] for name in arrays if name in _READ})
    except OSError as error:
        raise TraceFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, BadZipFile) as error:
        raise TraceFileError(
            f"{path}: not an .npz file of routes; --moe-trace records one"
        ) from error


_PROMPTS = ("prompt_experts", "prompt_lengths", "prompt_batches", "prompt_positions")
_READ = ("experts", "lengths", "num_experts", "expert_bytes", *_PROMPTS)


def _trace(path: Path, arrays: dict[str, NDArray[Any]]) -> Trace:
    if "experts" not in arrays:
        raise TraceFileError(f"{path}: has no array 'experts' of (tokens, layers, k)")
    experts = arrays["experts"]
    if experts.ndim != 3 or 0 in experts.shape or experts.dtype.kind not in "iu":
        raise TraceFileError(
            f"{path}: 'experts' is {experts.dtype} of {experts.shape};"
            " whole numbers of (tokens, layers, k) are wanted"
        )
    num_experts = _num_experts(path, arrays, experts)
    routes = np.ascontiguousarray(experts, np.int32)
    _check_distinct(path, routes)
    lengths = _lengths(path, arrays.get("lengths"), len(routes))
    expert_bytes = _expert_bytes(path, arrays, routes.shape[1])
    prompts = _prompts(path, [arrays.get(name) for name in _PROMPTS], routes, lengths, num_experts)
    return Trace(routes, lengths, num_experts, expert_bytes, prompts)


def _prompts(
    path: Path,
    found: Sequence[NDArray[Any] | None],
    routes: NDArray[np.int32],
    lengths: NDArray[np.int64],
    num_experts: int,
) -> Prompts | None:
    """Returns the prompts, None if an array is missing; raises TraceFileError."""
    given = [array for array in found if array is not None and array.dtype.kind in "iu"]
    if len(given) < len(_PROMPTS):
        return None
    experts, per_text, batches, positions = given
    is_valid = (
        experts.shape[1:] == routes.shape[1:]
        and per_text.shape == positions.shape == lengths.shape
        and (per_text >= 0).all()
        and (positions >= 0).all()
        and batches.ndim == 1
        and (batches > 0).all()
        and per_text.sum() == batches.sum() == len(experts)
        and np.isin(np.cumsum(per_text), np.append(np.cumsum(batches), 0)).all()
        and (not experts.size or 0 <= experts.min() <= experts.max() < num_experts)
    )
    if not is_valid:
        raise TraceFileError(f"{path}: {', '.join(_PROMPTS)} contradict each other or 'experts'")
    rows = np.ascontiguousarray(experts, np.int32)
    _check_distinct(path, rows)
    counts = (np.ascontiguousarray(each, np.int64) for each in (per_text, batches, positions))
    return Prompts(rows, *counts)


def _num_experts(path: Path, arrays: dict[str, NDArray[Any]], experts: NDArray[Any]) -> int:
    lowest, highest = int(experts.min()), int(experts.max())
    if "num_experts" not in arrays:
        number = highest + 1
    elif arrays["num_experts"].size == 1 and arrays["num_experts"].dtype.kind in "iu":
        number = int(arrays["num_experts"].reshape(-1)[0])
    else:
        raise TraceFileError(f"{path}: 'num_experts' is not one whole number")
    if lowest < 0 or highest >= number or number > 1 << 16:
        raise TraceFileError(
            f"{path}: expert ids from {lowest} to {highest} in a trace of {number} experts"
        )
    return number


def _check_distinct(path: Path, routes: NDArray[np.int32]) -> None:
    in_order = np.sort(routes, axis=2)
    repeats = (in_order[:, :, 1:] == in_order[:, :, :-1]).any(axis=(1, 2))
    if repeats.any():
        raise TraceFileError(
            f"{path}: token {int(repeats.argmax())} uses an expert of a layer twice"
        )


def _lengths(path: Path, lengths: NDArray[Any] | None, tokens: int) -> NDArray[np.int64]:
    if lengths is None:
        return np.array([tokens], np.int64)
    is_valid = lengths.ndim == 1 and lengths.dtype.kind in "iu" and (lengths >= 0).all()
    if not is_valid or int(lengths.sum()) != tokens:
        raise TraceFileError(f"{path}: 'lengths' do not add up to the {tokens} tokens of 'experts'")
    return np.ascontiguousarray(lengths, np.int64)


def _expert_bytes(
    path: Path, arrays: dict[str, NDArray[Any]], num_layers: int
) -> NDArray[np.int64] | None:
    if "expert_bytes" not in arrays:
        return None
    given = arrays["expert_bytes"]
    if given.dtype.kind not in "iu" or given.size not in (1, num_layers):
        raise TraceFileError(f"{path}: 'expert_bytes' are not one number or one a layer")
    return np.broadcast_to(given.reshape(-1), (num_layers,)).astype(np.int64)
