"""The heat map of experts beside the chat, in a drawer on small screens, and without experts."""

import time
from typing import Any

import pytest
from browser_tab import Screen
from scripted_server import NUM_EXPERTS, NUM_LAYERS, ScriptedServer, words

pytestmark = pytest.mark.usefixtures("browser")
PHONE = Screen(360, 740, is_touched=True)

COLOURS = """() => {
  const canvas = document.getElementById('heat-map');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3]) seen.add(data.slice(i, i + 3).join());
  return [...seen];
}"""

# Of one moment; a look between two would change both.
RESIDENT_AND_DISK = """() =>
  ["resident", "disk"].map((name) => document.getElementById(`legend-${name}`).textContent)
"""


def rgb(page: Any, name: str) -> str:
    """Returns the pixel value of a colour in the style sheet."""
    script = """(name) => {
      const context = new OffscreenCanvas(1, 1).getContext('2d');
      context.fillStyle = getComputedStyle(document.body).getPropertyValue(name);
      context.fillRect(0, 0, 1, 1);
      return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)].join();
    }"""
    return str(page.evaluate(script, name))


@pytest.mark.parametrize("screen", [Screen(colours="light"), Screen(colours="dark")], indirect=True)
def test_the_map_is_drawn(page: Any, server: ScriptedServer) -> None:
    page.wait_for_function("() => Number(document.getElementById('legend-hit').textContent) > 0")
    colours = set(page.evaluate(COLOURS))
    expected = {rgb(page, f"--heat-{state}") for state in ("disk", "resident", "hit", "loaded")}
    assert expected <= colours
    assert sum(map(int, page.evaluate(RESIDENT_AND_DISK))) == NUM_LAYERS * NUM_EXPERTS
    assert page.inner_text("#figure-speed") == "18.4"
    assert page.inner_text("#figure-hits").startswith("92.2")
    assert "MiB/s" in page.inner_text("#figure-read")


def test_the_map_has_words(page: Any) -> None:
    page.wait_for_selector("#heat:visible")
    summary = page.text_content("#heat-summary")
    assert f"{NUM_LAYERS} layers with {NUM_EXPERTS} experts each" in summary
    page.click(".by-layer summary")
    page.wait_for_selector("#layer-rows tr")
    assert page.locator("#layer-rows tr").count() == NUM_LAYERS
    assert page.inner_text("#layer-rows tr >> nth=2").split()[:4] == ["2", "16", "/", "64"]
    page.hover("#heat-map", position={"x": 2, "y": 2})
    page.wait_for_selector("#heat-cell:has-text('layer 0, expert 0:')")


def test_nobody_looks_on_while_the_panel_is_closed(page: Any, server: ScriptedServer) -> None:
    page.wait_for_selector("#heat:visible")
    page.click("#toggle-experts")
    while True:  # a look may be under way
        looks = server.num_looks
        page.wait_for_timeout(1200)
        assert server.num_looks - looks <= 1
        if server.num_looks == looks:
            break
    start = time.monotonic()
    page.click("#toggle-experts")
    while server.num_looks - looks < 3:
        assert time.monotonic() - start < 60, "nobody looks again"
        page.wait_for_timeout(10)
    assert server.num_looks - looks <= (time.monotonic() - start) * 2 + 2  # two a second


@pytest.mark.parametrize(("kind", "words"), [("dense", "no experts"), ("unloaded", "unloaded")])
def test_a_model_without_a_map_says_so(
    page: Any, server: ScriptedServer, kind: str, words: str
) -> None:
    server.kind = kind
    page.reload()
    page.wait_for_selector(f"#experts-note:has-text('{words}')")
    assert not page.is_visible("#heat")


def test_experts_in_memory_are_counted(page: Any, server: ScriptedServer) -> None:
    server.kind = "mapped"
    page.reload()
    page.wait_for_function("() => Number(document.getElementById('legend-hit').textContent) > 0")
    assert page.inner_text("#legend-disk") == page.inner_text("#legend-loaded") == "0"
    assert page.inner_text("#figure-hits") == "–"


@pytest.mark.parametrize("screen", [PHONE], indirect=True)
def test_a_small_screen(page: Any, server: ScriptedServer, say: Any) -> None:
    wide = "| " + " | ".join(["column"] * 12) + " |"
    text = f"{wide}\n{wide.replace('column', '---')}\n\n```\n{'x' * 300}\n```\n\n{'y' * 300}"
    server.answers["wide"] = words(text)
    say("wide")
    page.wait_for_selector(".message.assistant:not(.is-answering)")
    widths = (
        "[document.documentElement.scrollWidth, document.getElementById('scroller').scrollWidth]"
    )
    assert page.evaluate(widths) == [360, 360]
    for name in ("new-chat", "open-settings", "toggle-experts", "send"):
        box = page.locator(f"#{name}").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert min(box["width"], box["height"]) >= 36


@pytest.mark.parametrize("screen", [PHONE], indirect=True)
def test_the_drawer(page: Any, server: ScriptedServer) -> None:
    assert not page.is_visible("#experts")
    assert server.num_looks == 0
    page.click("#toggle-experts")
    page.wait_for_selector("#heat:visible")
    page.wait_for_selector("#close-experts:focus")
    assert page.evaluate("document.getElementById('chat').inert")
    page.keyboard.press("Escape")
    page.wait_for_selector("#experts", state="hidden")
    page.wait_for_selector("#toggle-experts:focus")
    page.click("#toggle-experts")
    page.wait_for_selector("#experts:visible")
    page.mouse.click(10, 400)
    page.wait_for_selector("#experts", state="hidden")
