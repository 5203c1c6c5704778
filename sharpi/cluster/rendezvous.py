"""Rendezvous: the address where one model's ranks meet, given by flags or by torchrun."""

import os
from collections.abc import Mapping

from msgspec import Struct

from sharpi.errors import ClusterError

DEFAULT_PORT = 29400


class Rendezvous(Struct, frozen=True):
    """The rendezvous of a model's ranks: the first rank's address, and this process's rank.

    `rank` and `size` are None if this process has to ask the first rank for them.
    """

    address: str
    port: int = DEFAULT_PORT
    rank: int | None = None
    size: int | None = None
    link: str | None = None  # the network interface; None uses the one that routes to `address`
    allows_public: bool = False
    is_own: bool = False  # sharpi's first rank listens at the address; False if torchrun does
    restarts: int = 0  # how often torchrun has restarted the processes


def own_gpu(variables: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Returns the index of this process's GPU, if torchrun started several processes here.

    Returns an empty tuple if this is the only process on its machine; it may use all GPUs.
    """
    local = variables.get("LOCAL_RANK", "")
    is_alone = variables.get("LOCAL_WORLD_SIZE", "1") == "1"
    return () if is_alone or not local.isdecimal() else (int(local),)


def torchrun_rendezvous(variables: Mapping[str, str] = os.environ) -> Rendezvous | None:
    """Returns the rendezvous that torchrun's environment variables name.

    Returns None without such variables; raises ClusterError if their values are invalid.
    """
    if "RANK" not in variables or "WORLD_SIZE" not in variables:
        return None
    try:
        rank, size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        port = int(variables.get("MASTER_PORT", DEFAULT_PORT))
        restarts = int(variables.get("TORCHELASTIC_RESTART_COUNT", 0))
    except ValueError as error:
        raise ClusterError(f"RANK, WORLD_SIZE and MASTER_PORT are numbers: {error}") from None
    if not 0 <= rank < size:
        raise ClusterError(f"RANK {rank} is not one of WORLD_SIZE {size}")
    address = variables.get("MASTER_ADDR", "127.0.0.1")
    return Rendezvous(address, port, rank, size, restarts=restarts)
