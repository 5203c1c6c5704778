"""Takes snapshots of which experts are resident and how often each was used, for other threads."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from sharpi.experts.native.store import ExpertStore
from sharpi.experts.native.store_counts import StoreCounts


class ExpertView(Struct, frozen=True):
    """A snapshot of the experts in some layers; counts grow from one snapshot to the next."""

    layers: tuple[int, ...]  # layer indices
    slots: tuple[int, ...]  # slots of each layer
    resident: NDArray[np.bool_]  # (layers, experts)
    uses: NDArray[np.int64]  # (layers, experts) since the start
    num_tokens: int
    # of each layer since the start; None if all experts are in memory
    counts: tuple[StoreCounts, ...] | None = None


def view_of_store(store: ExpertStore, moe_layers: Sequence[int], num_tokens: int) -> ExpertView:
    """Returns a snapshot of a model whose experts are in slots; call it between two steps."""
    states, counts, layouts = store.policy.states(), store.counts(), store.layout.layers
    slots = (min(store.settings.slots[i], layouts[i].num_experts) for i in moe_layers)
    rows = list(moe_layers)
    return ExpertView(
        layers=tuple(moe_layers),
        slots=tuple(slots),
        resident=states.resident[rows],
        uses=store.uses()[rows],
        num_tokens=num_tokens,
        counts=tuple(counts[i] for i in moe_layers),
    )


def view_of_mapped(
    uses: NDArray[np.int64], moe_layers: Sequence[int], num_tokens: int
) -> ExpertView:
    """Returns a snapshot of a model whose experts are all in memory.

    `uses` (layers, experts) has rows for all layers of the model.
    """
    rows = uses[list(moe_layers)]
    slots = (rows.shape[1],) * len(moe_layers)
    return ExpertView(tuple(moe_layers), slots, np.ones(rows.shape, np.bool_), rows, num_tokens)
