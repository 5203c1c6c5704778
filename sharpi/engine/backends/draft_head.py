"""DraftHead: the interface of a head that predicts tokens from a model's own hidden states."""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.model_part import Values
from sharpi.engine.backends.recorded_part import PartCache
from sharpi.ops.cpu.program import IntArray


class HeadOutput(NamedTuple):
    """The head's result after its last token: views that the next pass overwrites."""

    hidden: npt.NDArray[np.float32]  # (hidden,)
    logits: npt.NDArray[np.float32]  # (vocabulary,)


class DraftHead(Protocol):
    """A head for multi-token prediction, with or without keys and values of its own."""

    @property
    def follows_drafts(self) -> bool:
        """True if each draft has its own position, False if all have the first draft's."""

    @property
    def context_size(self) -> int:
        """The most positions of one sequence."""

    def fill(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> None:
        """Computes and stores the keys and values of any number of tokens, from `position` on.

        `hidden` (tokens, hidden) are the model's hidden states at these positions, and `ids`
        (tokens,) are the tokens that follow each of them.
        """

    def predict(self, ids: IntArray, position: int, pages: IntArray, hidden: Values) -> HeadOutput:
        """Stores keys and values as `fill` does, and predicts the token after the last of `ids`.

        Raises ModelFileError where an expert could not be read.
        """

    @property
    def pages(self) -> PartCache:
        """The head's keys and values, in the pages of the model's KV cache."""

    def close(self) -> None:
        """Frees the head's memory."""
