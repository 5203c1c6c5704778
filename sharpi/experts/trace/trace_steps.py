"""Steps: recorded routes in the order in which they ran, including the batches of prompts."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


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
