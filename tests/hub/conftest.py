"""A hub to pull from, an empty cache to pull into, and a watcher that records."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from listener import Listener
from stand_in import StandIn


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Removes the developer's token, and a variable that switches the hub off."""
    from huggingface_hub import constants

    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def hub() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture
def listener() -> Listener:
    return Listener()
