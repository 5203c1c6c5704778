"""The arguments of kernels that decide which of a layer's experts have slots."""

from typing import Final, NamedTuple

from sharpi.device.launch import Argument


class TableArguments(NamedTuple):
    """Address tables (experts,), each followed by all addresses that it may hold."""

    first: Argument = None
    first_addresses: Argument = None
    second: Argument = None
    second_addresses: Argument = None
    third: Argument = None
    third_addresses: Argument = None


class DecisionArguments(NamedTuple):
    """A layer's slots, and how to decide about them (SLOT_DECISION of slot_decision.cuh)."""

    state: Argument
    loads: Argument
    outcomes: Argument
    overflow: Argument
    tables: TableArguments
    learned: Argument
    routes: Argument
    num_slots: Argument
    num_early: Argument
    num_staging: Argument
    kind: Argument
    has_admission: Argument
    miss: Argument
    phase: Argument
    layer: Argument
    num_layers: Argument
    num_ranks: Argument
    rate: Argument


DECISION_WRITES: Final = (
    *("state", "loads", "outcomes", "overflow"),
    *("tables.first", "tables.second", "tables.third", "learned", "routes"),
)


class SlotPolicyArguments(NamedTuple):
    """The arguments of the kernel `slot_policy`: a token's experts, and the decision about them."""

    ids: Argument
    experts: Argument
    used: Argument
    num_before: Argument
    num_tokens: Argument
    decision: DecisionArguments
