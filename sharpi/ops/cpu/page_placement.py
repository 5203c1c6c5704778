"""Moves weights to the memory of the NUMA node whose threads read them."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sharpi.ops.cpu.abi import PageSpan
from sharpi.ops.cpu.library import load_library
from sharpi.ops.cpu.thread_pool import Place


def place_pages(spans: Sequence[PageSpan], places: Sequence[Place]) -> str | None:
    """Moves the pages of each span to the memory of the span's NUMA node.

    Returns None, or a message that says why pages could not be moved. A thread on the node first
    reads the span, so that pages still on the disk are loaded into that node's memory.
    """
    nodes = sorted({place.node for place in places})
    with ThreadPoolExecutor(len(nodes)) as pool:
        works = [
            pool.submit(_place, [s for s in spans if s.node == node], _cores(places, node))
            for node in nodes
        ]
    errors = {work.result() for work in works} - {0}
    if not errors:
        return None
    return f"weights were not moved between NUMA nodes: {os.strerror(min(errors))}"


def _cores(places: Sequence[Place], node: int) -> set[int]:
    return {core for place in places if place.node == node for core in place.cores}


def _place(spans: Sequence[PageSpan], cores: set[int]) -> int:
    """Moves spans of one node to its memory, on a thread that is bound to the node's `cores`.

    Returns the first errno, or 0.
    """
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    place = load_library().sharpi_place_pages
    results = (place(span.at, span.bytes, span.node) for span in spans)
    return next(filter(None, results), 0)
