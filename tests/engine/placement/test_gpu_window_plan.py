"""The plan counts what layers with windows keep on a GPU, and gives the rest to experts."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from sharpi.engine import settings
from sharpi.engine.kv.window_pages import gpu_windows_of
from sharpi.engine.placement.placement import Placement
from sharpi.engine.settings import decide
from sharpi.gguf.reader import open_gguf
from sharpi.hardware.info import probe_hardware
from sharpi.model.config import read_config
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.settings import RunConfig
from sharpi.tiers.gpu import RESERVE_BYTES
from sharpi.tiers.plan import Purpose, Tier, TierPlan
from sharpi.tiers.settings import EngineSettings

MODEL = Path(__file__).parents[2] / "references" / "data" / "gpt-oss.gguf"
CONFIG = RunConfig(MODEL, context_size=32768, batch_size=64, kv_type="f16", vram=4 << 30)
IN_FRAMES = 8  # two pages of 16 + 64 positions, two at the ends, and four to spare
PAGES = 32768 // PAGE_POSITIONS


def planned(config: RunConfig) -> tuple[TierPlan, EngineSettings]:
    hardware = replace(probe_hardware(), free_vram=8 << 30)
    with open_gguf(MODEL) as file:
        model = read_config(file)
        decided = decide(config, file, model, hardware)
        return Placement(config, file, model, decided, hardware).plan(), decided


def whole(config: RunConfig, patch: pytest.MonkeyPatch) -> tuple[TierPlan, EngineSettings]:
    with patch.context() as own:
        own.setattr(settings, "window_pages", lambda *_: 0)
        return planned(config)


def test_layers_with_windows_take_their_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_gguf(MODEL) as file:
        windows = gpu_windows_of(read_config(file))
    assert windows
    found, before = planned(CONFIG)[0], whole(CONFIG, monkeypatch)[0]
    for layer, own in zip(found.layers, before.layers, strict=True):
        share = IN_FRAMES / PAGES if layer.index in windows else 1
        assert layer.kv_bytes == own.kv_bytes * share
    taken = [plan.bytes_in(Tier.VRAM, Purpose.KV) for plan in (found, before)]
    assert taken[0] < 0.6 * taken[1]
    (said,) = (line.reason for line in found.lines if line.purpose is Purpose.KV and line.num_bytes)
    in_windows = f"256 at most in {len(windows)} with windows"
    assert said == f"32768 positions beside their layers; {in_windows}"


def test_several_sequences_share_what_windows_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are counted by the layers that have all of them."""
    config = replace(CONFIG, num_parallel=4, ram=28 << 20, vram=None, device="cpu")
    found, before = planned(config)[1], whole(config, monkeypatch)[1]
    assert PAGES < before.num_pages < found.num_pages < 4 * PAGES
    assert any("the KV cache has room for" in note for note in found.notes)


def test_what_they_leave_goes_to_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = whole(CONFIG, monkeypatch)[0]
    needed = plan.bytes_in(Tier.VRAM)
    tight = replace(CONFIG, vram=needed - plan.bytes_in(Tier.VRAM, Purpose.SLOTS) // 2)
    assert tight.vram is not None
    assert tight.vram > RESERVE_BYTES
    found, before = planned(tight)[0], whole(tight, monkeypatch)[0]
    slots = [sum(layer.vram_slots for layer in each.layers) for each in (found, before)]
    assert slots[0] > slots[1]


@pytest.mark.slow
def test_f16_stays_where_windows_make_it_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both plans that choose the type count the pages of windows."""
    config = replace(CONFIG, kv_type=None)
    kinds = []
    for mib in range(520, 620, 4):
        own = replace(config, vram=mib << 20)
        kinds.append((str(planned(own)[1].kv_types), str(whole(own, monkeypatch)[1].kv_types)))
    assert ("f16", "q8_0") in kinds
    assert ("q8_0", "f16") not in kinds
