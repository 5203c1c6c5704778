"""What the plan says about keys and values: each type's bytes, and what no type changes."""

from pathlib import Path

import pytest

from sharpi.engine.kv.kv_choice import kv_notes
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
from sharpi.ops.cpu.kv_cache import kv_bytes
from sharpi.resources import demo_model

DATA = Path(__file__).parents[2] / "references" / "data"


def notes(path: Path) -> list[str]:
    with open_gguf(path) as file:
        return list(kv_notes(read_config(file), 4096))


def test_every_type_that_the_heads_can_have() -> None:
    """The demo has 6 layers of 2 KV heads of 64."""
    (line,) = notes(demo_model())
    assert line.startswith("keys and values of 4096 positions, once all are used: f16 12.0 MiB, ")
    assert "q8_0 6.4 MiB" in line
    assert "turbo3 2.4 MiB" in line


def test_heads_that_are_no_blocks_have_f16_alone() -> None:
    (line,) = notes(DATA / "mixtral.gguf")
    assert "f16" in line
    assert "q8_0" not in line


def test_layers_with_windows_save_what_they_do_not_keep() -> None:
    with open_gguf(DATA / "gpt-oss.gguf") as file:
        model = read_config(file)
    whole, limited = (list(kv_notes(model, 4096, pages)) for pages in (0, 8))
    assert "keep those before it too" in whole[1]
    assert "keep 512 at most" in limited[1]
    sizes = [kv_bytes(model.attention, 4096, window_pages=pages) for pages in (0, 8)]
    in_windows = sum(bool(shape.window) for shape in model.attention) / len(model.attention)
    assert sizes[1] == pytest.approx(sizes[0] * (1 - in_windows * 7 / 8))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("deepseek3", "latent attention"),
        ("granitehybrid", "keep a state of"),
        ("gemma3", "read a window of"),
    ],
)
def test_what_types_do_not_change(name: str, said: str) -> None:
    assert any(said in line for line in notes(DATA / f"{name}.gguf"))
