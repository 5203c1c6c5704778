"""The offsets of each layer's experts in the model's files, and the size of an expert slot.

Direct I/O reads aligned blocks of 4096 bytes. So a slot has space for all blocks that an expert's
three matrices touch, and a matrix may begin anywhere within its first block.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from sharpi.errors import ModelFileError
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.system.files import widest_range

_MATRICES = ("gate", "up", "down")


class PieceLayout(Struct, frozen=True):
    """The gate, up or down matrices of all experts of a layer, contiguous in one file."""

    file: int  # index of the model's file
    offset: int  # bytes from the start of that file
    num_bytes: int  # bytes of one expert's matrix


_NOTHING = PieceLayout(file=0, offset=0, num_bytes=0)


class LayerLayout(Struct, frozen=True):
    """The positions and sizes of a layer's routed experts in the model's files."""

    num_experts: int = 0  # 0 in a dense layer
    # gate (or fused gate and up), up, down; a missing one has no bytes
    pieces: tuple[PieceLayout, ...] = ()

    @property
    def expert_bytes(self) -> int:
        """Bytes of one expert as the file encodes it."""
        return sum(piece.num_bytes for piece in self.pieces)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a buffer that any expert of the layer can be read into."""
        return sum(widest_range(p.offset, p.num_bytes, self.num_experts) for p in self.pieces)


class StoreLayout(Struct, frozen=True):
    """A model's files, and the layout of each layer's experts in them."""

    files: tuple[Path, ...]
    layers: tuple[LayerLayout, ...]

    @property
    def largest_slot(self) -> int:
        """Bytes of a buffer that fits an expert of any layer; 0 without experts."""
        return max((layer.slot_bytes for layer in self.layers), default=0)

    def memory_bytes(self, slots: tuple[int, ...], num_staging: int) -> int:
        """Returns the bytes that the store allocates for this many slots and staging buffers."""
        in_layers = zip(slots, self.layers, strict=True)
        return sum(n * layer.slot_bytes for n, layer in in_layers) + num_staging * self.largest_slot


def read_layout(file: GgufFile, num_layers: int) -> StoreLayout:
    """Finds each layer's experts in the file.

    Raises ModelFileError if a layer with experts lacks the up or down matrix.
    """
    layers = tuple(_layer(file.path, file.tensors, index) for index in range(num_layers))
    return StoreLayout(file.openable_parts, layers)


def _layer(path: Path, tensors: Mapping[str, Tensor], index: int) -> LayerLayout:
    names = {each: f"blk.{index}.ffn_{each}_exps.weight" for each in _MATRICES}
    found = {each: tensors[name] for each, name in names.items() if name in tensors}
    fused = tensors.get(f"blk.{index}.ffn_gate_up_exps.weight")
    if fused is not None and "down" in found:
        return LayerLayout(fused.shape[0], (_piece(fused), _NOTHING, _piece(found["down"])))
    if not found:
        return LayerLayout()
    num_experts = next(iter(found.values())).shape[0]
    is_whole = {"up", "down"} <= found.keys()
    if not is_whole or any(tensor.shape[0] != num_experts for tensor in found.values()):
        raise ModelFileError(
            f"{path}: layer {index} does not have {', '.join(_MATRICES)} of all its experts, so"
            " they cannot be read one by one; give --ram the whole model's size"
        )
    pieces = (_piece(found[each]) if each in found else _NOTHING for each in _MATRICES)
    return LayerLayout(num_experts, tuple(pieces))


def _piece(tensor: Tensor) -> PieceLayout:
    return PieceLayout(tensor.part, tensor.offset, tensor.num_bytes // tensor.shape[0])
