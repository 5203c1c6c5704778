"""A link between two TUN devices: each packet arrives after a time, or is lost.

Arguments: the devices' file descriptors, the delay in seconds, bits per second, the part lost.
"""

import heapq
import os
import random
import select
import sys
import time

_MOST_BYTES, _MOST_PACKETS = 65536, 4096


def main() -> None:
    """Carries packets both ways until it is killed."""
    first, second = (int(text) for text in sys.argv[1:3])
    delay, rate, loss = (float(text) for text in sys.argv[3:])
    other = {first: second, second: first}
    is_free = dict.fromkeys(other, 0.0)  # when the last packet that came from a device is sent
    under_way: list[tuple[float, int, int, bytes]] = []
    chance, count = random.Random(1), 0
    for device in other:
        os.set_blocking(device, False)
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, device, packet = heapq.heappop(under_way)
            os.write(device, packet)
        wait = max(0.0, under_way[0][0] - now) if under_way else None
        for device in select.select(list(other), [], [], wait)[0]:
            packet = os.read(device, _MOST_BYTES)
            now = time.monotonic()
            is_free[device] = max(now, is_free[device]) + 8 * len(packet) / rate
            if chance.random() >= loss and len(under_way) < _MOST_PACKETS:
                count += 1
                entry = is_free[device] + delay, count, other[device], packet
                heapq.heappush(under_way, entry)


if __name__ == "__main__":
    main()
