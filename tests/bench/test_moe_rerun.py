"""The rows of a rerun, which only include a GPU if there is one."""

from pathlib import Path

import pytest
from moe_rerun import read_baseline, runs

MODELS = Path(__file__).parents[2] / "models" / "demo"
DEMO = MODELS / "stories-moe.gguf"
DENSE = Path(__file__).parents[1] / "references" / "data" / "llama.gguf"


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = runs(DEMO, has_gpu=False)
    assert all(arguments[-2:] == ["--device", "cpu"] for arguments in found.values())
    assert "no GPU: its rows are left out" in capsys.readouterr().err


def test_with_a_gpu_a_quarter_of_the_experts_has_slots() -> None:
    found = runs(DEMO, has_gpu=True)
    quarter = found["gpu 25 % stream "]
    assert quarter[quarter.index("--moe-slots") + 1] == "4"
    assert quarter[-2:] == ["--moe-miss", "stream"]
    assert {name for name in found if name.startswith("gpu")} == {
        "gpu ", "gpu 25 % auto ", "gpu 25 % stream ", "gpu 25 % load ", "gpu 25 % cpu ",
    }  # fmt: skip


def test_a_dense_model_has_no_experts_to_miss() -> None:
    assert [name for name in runs(DENSE, has_gpu=True) if name.startswith("gpu")] == ["gpu "]


def test_a_baseline_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--baseline .*none: cannot be read \(No such file"):
        read_baseline(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(SystemExit, match="text: holds no figures; --save writes them"):
        read_baseline(tmp_path / "text")
