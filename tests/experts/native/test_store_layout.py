"""The layout of experts in one file or several, with the sizes that the planner uses."""

from pathlib import Path

import numpy as np
import pytest

from sharpi.errors import ModelFileError
from sharpi.experts.native.store_abi import LayerLayout, PieceLayout, read_layout
from sharpi.gguf.quant_types import QuantType
from sharpi.gguf.reader import GgufFile, Tensor, open_gguf
from sharpi.model.config import read_config
from sharpi.resources import demo_model
from sharpi.system.files import ALIGNMENT
from sharpi.tiers.facts import read_facts

REFERENCES = Path(__file__).parents[2] / "references" / "data"
MODELS = [demo_model(), *(REFERENCES / f"{name}.gguf" for name in ("qwen2moe", "mixtral", "llama"))]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_bytes_are_those_of_the_tensors(path: Path) -> None:
    with open_gguf(path) as file:
        layout = read_layout(file, read_config(file).num_layers)
        for index, layer in enumerate(layout.layers):
            for name, piece in zip(("gate", "up", "down"), layer.pieces, strict=False):
                experts = file.tensors[f"blk.{index}.ffn_{name}_exps.weight"].data
                whole = np.memmap(layout.files[piece.file], np.uint8, "r")
                for expert in range(layer.num_experts):
                    start = piece.offset + expert * piece.num_bytes
                    found = whole[start : start + piece.num_bytes]
                    assert (
                        found.tobytes() == experts.reshape(layer.num_experts, -1)[expert].tobytes()
                    )


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_sizes_are_those_of_the_plan(path: Path) -> None:
    with open_gguf(path) as file:
        config = read_config(file)
        facts, layout = read_facts(file, config), read_layout(file, config.num_layers)
    assert [layer.slot_bytes for layer in layout.layers] == [x.slot_bytes for x in facts.layers]
    assert [layer.expert_bytes for layer in layout.layers] == [x.expert_bytes for x in facts.layers]
    assert layout.largest_slot == facts.largest_slot


def test_memory_of_slots_and_staging() -> None:
    with open_gguf(demo_model()) as file:
        layout = read_layout(file, 6)
    slots = (1, 2, 3, 0, 0, 0)
    sizes = [layer.slot_bytes for layer in layout.layers]
    expected = sizes[0] + 2 * sizes[1] + 3 * sizes[2] + 4 * max(sizes)
    assert layout.memory_bytes(slots, 4) == expected


def test_a_slot_holds_the_worst_placed_expert() -> None:
    aligned = LayerLayout(3, (PieceLayout(0, 0, ALIGNMENT),))
    assert aligned.slot_bytes == ALIGNMENT
    astride = LayerLayout(3, (PieceLayout(0, 32, ALIGNMENT),))
    assert astride.slot_bytes == 2 * ALIGNMENT
    assert LayerLayout(2, (PieceLayout(0, 0, 100),)).slot_bytes == ALIGNMENT
    assert LayerLayout(42, (PieceLayout(0, 0, 100),)).slot_bytes == 2 * ALIGNMENT


def test_parts_of_a_split_set_and_a_matrix_that_is_missing() -> None:
    def tensor(name: str, part: int) -> Tensor:
        shape = (4, 8, 32)
        data = np.zeros(4 * 8 * 32 * 4, np.uint8)
        full = f"blk.0.ffn_{name}_exps.weight"
        return Tensor(full, QuantType.F32, shape, data, part, 64 * part)

    tensors = {each.name: each for each in (tensor("gate", 0), tensor("up", 1), tensor("down", 1))}
    parts = (Path("a-00001-of-00002.gguf"), Path("a-00002-of-00002.gguf"))
    file = GgufFile(parts[0], 3, None, tensors, parts, 0)  # type: ignore[arg-type]
    layout = read_layout(file, 2)
    assert layout.files == parts
    assert [piece.file for piece in layout.layers[0].pieces] == [0, 1, 1]
    assert [piece.offset for piece in layout.layers[0].pieces] == [0, 64, 64]
    assert layout.layers[1] == LayerLayout()
    del tensors["blk.0.ffn_up_exps.weight"]
    with pytest.raises(ModelFileError, match="layer 0 does not have gate, up, down"):
        read_layout(file, 1)
