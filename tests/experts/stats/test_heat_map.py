"""Heats of experts, their folding to a width, and the picture."""

import sys
from pathlib import Path

import numpy as np
import pytest
from expert_runs import a_run

from sharpi.errors import UsageError
from sharpi.experts.stats.heat_map import fold, heats, save_png


def test_one_is_the_even_share() -> None:
    values = heats(a_run())
    np.testing.assert_allclose(values[0], [0.4, 0.8, 2.8, 0])
    np.testing.assert_array_equal(values[1], np.ones(4))
    assert np.isnan(values[2]).all()


@pytest.mark.parametrize(
    ("width", "expected", "together"),
    [(9, [1, 5, 2, 7, 3], 1), (5, [1, 5, 2, 7, 3], 1), (4, [5, 7, 3], 2), (1, [7], 5)],
)
def test_neighbours_share_a_column(width: int, expected: list[float], together: int) -> None:
    folded, each = fold(np.array([[1.0, 5, 2, 7, 3]]), width)
    assert folded.tolist() == [expected]
    assert each == together


@pytest.mark.slow
def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "heat"
    save_png(path, a_run())
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"--png .*none/heat: cannot be written \(No such file"):
        save_png(tmp_path / "none" / "heat", a_run())


def test_a_picture_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="pip install matplotlib"):
        save_png(tmp_path / "heat.png", a_run())
    assert not (tmp_path / "heat.png").exists()
