"""Opens NCCL communicators between two ranks, from the GPU of one to the GPU of the other.

Each direction has a separate communicator. In a single one, transfers run in the order of the
calls, so two ranks that both send first would wait forever.
"""

import os
from datetime import timedelta
from typing import Any

_FOREVER = timedelta(days=365)  # the watch notices what is wrong, and aborts the communicator
_VARIABLES = {
    # An error shall not end the process: the watch reports it, in one line.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    "TORCH_NCCL_ENABLE_MONITORING": "0",
}


def has_nccl(torch: Any) -> bool:
    """Returns True if this build of torch has NCCL."""
    return bool(torch.distributed.is_nccl_available())


def open_pair(torch: Any, store: Any, interface: str, *, sends: bool) -> Any:
    """Returns this process's end of a communicator between two ranks, on the named interface.

    Within the communicator, the end with `sends` has rank 0 and the receiving end has rank 1. Only
    these two ends may use `store`. The ends connect at their first transfer.
    """
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    distributed = torch.distributed
    options = distributed.ProcessGroupNCCL.Options()
    options._timeout = _FOREVER
    return distributed.ProcessGroupNCCL(store, 0 if sends else 1, 2, options)
