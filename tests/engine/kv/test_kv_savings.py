"""What the plan says about keys and values: each type's bytes, and what no type changes."""

from pathlib import Path

import pytest

from sharpi.engine.kv.kv_savings import kv_notes
from sharpi.gguf.reader import open_gguf
from sharpi.model.config import read_config
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
