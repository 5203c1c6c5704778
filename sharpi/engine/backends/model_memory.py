"""ModelMemory: the pages and states of all parts of a model, read and written as one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from sharpi.engine.backends.model_part import HostBytes, ModelPart, RemoteLayers
from sharpi.engine.backends.recorded_part import PartCache, RecordedPart

if TYPE_CHECKING:
    from sharpi.engine.backends.draft_head import DraftHead

T = TypeVar("T")


class ModelMemory:
    """Copies, reads and writes what the parts, and the `head`, keep in a page or in a state.

    With `drops_windows`, the sliding-window layers of the parts here may lack a page.
    `is_host_memory`: any thread may read pages and states while no step writes to them.
    """

    def __init__(
        self,
        parts: Sequence[ModelPart],
        head: "DraftHead | None",
        remote: RemoteLayers | None,
        *,
        drops_windows: bool,
    ) -> None:
        self._parts, self._remote = parts, remote
        self._head = None if head is None else head.pages
        self._owners: list[ModelPart | PartCache] = [*parts, *([head.pages] if head else [])]
        self._trimmed = [part for part in parts if drops_windows and isinstance(part, RecordedPart)]
        self.is_host_memory = all(part.is_host_memory for part in parts)

    def copy_page(self, source: int, target: int) -> None:
        """Copies a page of the KV cache to another, in all layers."""
        for owner in self._owners:
            owner.copy_page(source, target)

    def drop_windows(self, page: int, is_before_free: bool, is_after_free: bool) -> None:
        """Drops what sliding-window layers have in a page; see `KvCache.drop_windows`."""
        free = {"is_before_free": is_before_free, "is_after_free": is_after_free}
        for part in self._trimmed:
            part.drop_windows(page, **free)
        if self._remote is not None:
            self._remote.drop_windows(page, **free)

    def copy_state(self, source: int, target: int) -> None:
        """Copies a state to another, in all recurrent layers."""
        for part in self._parts:
            part.copy_state(source, target)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of the KV cache, in all layers."""
        return sum(owner.page_bytes for owner in self._owners)

    @property
    def state_bytes(self) -> int:
        """Bytes of one state, in all recurrent layers."""
        return sum(part.state_bytes for part in self._parts)

    def read_page(self, page: int, target: HostBytes) -> None:
        """Copies a page of all layers to `target`, (page_bytes,)."""
        for owner, own in _shares(target, self._owners, lambda each: each.page_bytes):
            owner.read_page(page, own)

    def write_page(self, page: int, source: HostBytes) -> None:
        """Sets a page of all layers to what `read_page` read."""
        for owner, own in _shares(source, self._owners, lambda each: each.page_bytes):
            owner.write_page(page, own)

    @property
    def partial_bytes(self) -> int:
        """Bytes of one page without sliding-window layers; 0 where these keep all pages."""
        head = self._head.page_bytes if self._trimmed and self._head is not None else 0
        return head + sum(part.partial_bytes for part in self._trimmed)

    def read_partial(self, page: int, target: HostBytes) -> None:
        """Copies a page without sliding-window layers to `target`, (partial_bytes,)."""
        for part, own in _shares(target, self._trimmed, lambda each: each.partial_bytes):
            part.read_partial(page, own)
        if self._head is not None:
            self._head.read_page(page, target[self.partial_bytes - self._head.page_bytes :])

    def write_partial(self, page: int, source: HostBytes) -> None:
        """Sets a page without sliding-window layers to what `read_partial` read."""
        for part, own in _shares(source, self._trimmed, lambda each: each.partial_bytes):
            part.write_partial(page, own)
        if self._head is not None:
            self._head.write_page(page, source[self.partial_bytes - self._head.page_bytes :])

    def read_state(self, state: int, target: HostBytes) -> None:
        """Copies a state of all recurrent layers to `target`, (state_bytes,)."""
        for part, own in _shares(target, self._parts, lambda each: each.state_bytes):
            part.read_state(state, own)

    def write_state(self, state: int, source: HostBytes) -> None:
        """Sets a state of all recurrent layers to what `read_state` read."""
        for part, own in _shares(source, self._parts, lambda each: each.state_bytes):
            part.write_state(state, own)


def _shares(
    data: HostBytes, owners: Iterable[T], size: Callable[[T], int]
) -> Iterator[tuple[T, HostBytes]]:
    """Yields each owner with its share of data; `size` has the bytes of one."""
    at = 0
    for owner in owners:
        yield owner, data[at : at + size(owner)]
        at += size(owner)
