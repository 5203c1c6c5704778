"""Says whether a call lets other threads run while it works."""

import sys
import threading
import time
from collections.abc import Callable


def lets_others_run(call: Callable[[], object]) -> bool:
    """Returns whether this thread runs while `call` works in another one.

    Python switches threads only between library calls. So this thread runs meanwhile only if the
    library releases the GIL.
    """
    reached: list[str] = []

    def work() -> None:
        reached.append("begun")
        call()
        reached.append("ended")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        while not reached:
            time.sleep(0.0001)
        found = "ended" not in reached
        thread.join()
        return found
    finally:
        sys.setswitchinterval(interval)
