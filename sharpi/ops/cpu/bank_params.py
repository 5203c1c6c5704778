"""Banks of experts as the native operations take them: tables of addresses and their types."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sharpi.ops.cpu import abi
from sharpi.ops.interface import Bank, ExpertBanks, ExpertSource

Keep = Callable[[np.ndarray | None], int | None]  # an array's address; somebody keeps the array


def piece_params(
    banks: ExpertBanks, piece: int, source: ExpertSource | None, keep: Keep
) -> abi.BankParams:
    """Gate (0), up (1) or down (2), where `source` brings them, None: where they are mapped."""
    bank = (banks.gate, banks.up, banks.down)[piece]
    if bank is None:
        return abi.BankParams()
    if banks.layer is None or source is None:
        return bank_in_memory(bank, keep)
    # Gate and up in one tensor are one piece, in the place of the gate.
    is_up_in_gate = piece == 1 and bank.shares_data
    return _params(bank, source.table(banks.layer, 0 if is_up_in_gate else piece), keep)


def bank_in_memory(bank: Bank, keep: Keep) -> abi.BankParams:
    """A bank whose data is all of it."""
    return _params(bank, keep(_addresses(bank)), keep)


def _params(bank: Bank, table: int | None, keep: Keep) -> abi.BankParams:
    return abi.BankParams(
        table, keep(bank.bias), keep(bank.scales),
        bank.quant_type, bank.rows, bank.columns, bank.first_row,
    )  # fmt: skip


def _addresses(bank: Bank) -> npt.NDArray[np.uint64]:
    """Where each expert's matrix begins, (experts)."""
    stride = bank.data.nbytes // bank.num_experts
    offsets = np.arange(bank.num_experts, dtype=np.uint64) * np.uint64(stride)
    return np.uint64(bank.data.ctypes.data) + offsets
