"""Chatting in the page: sending, streaming, stopping, failing, and the keyboard."""

import time
from typing import Any

import pytest
from scripted_server import ScriptedServer, words

ANSWER = ".message.assistant .answer"
DONE = ".message.assistant:not(.is-answering)"
pytestmark = pytest.mark.usefixtures("browser")


def test_an_answer_streams_and_is_counted(page: Any, server: ScriptedServer, say: Any) -> None:
    server.answers["tell"] = words("Once upon a time there was a fox. " * 20)
    server.held_after = 20
    say("tell")
    page.wait_for_selector(f"{ANSWER}:has-text('Once upon')")
    assert page.locator(".message.assistant").get_attribute("aria-busy") == "true"
    server.held_after = None
    page.wait_for_selector(DONE)
    assert page.inner_text(ANSWER).count("fox") == 20
    foot = page.inner_text(".message.assistant .foot")
    assert f"{len(server.answers['tell'])} tokens" in foot
    assert "prompt 40 (24 cached)" in foot
    assert "tokens/s" in foot
    assert page.inner_text("#status") == "Answer complete"


def test_a_conversation_is_sent_whole(page: Any, server: ScriptedServer, say: Any) -> None:
    say("one")
    page.wait_for_selector(DONE)
    say("two")
    page.wait_for_selector(f"{DONE} >> nth=1")
    first, second = server.requests
    assert first["model"] == "Scripted-MoE-30B-A3B-Q4_K_M"
    assert first["stream"] is True
    assert [each["content"] for each in second["messages"]] == ["one", "You said: one", "two"]
    page.click("#new-chat")
    assert page.locator(".message").count() == 0
    say("three")
    page.wait_for_selector(DONE)
    assert len(server.requests[-1]["messages"]) == 1


@pytest.mark.parametrize("way", ["key", "button"])
def test_a_stopped_answer_stays_and_the_server_is_told(
    page: Any, server: ScriptedServer, say: Any, way: str
) -> None:
    server.answers["slow"], server.pause = words("word " * 5000), 0.02
    say("slow")
    page.wait_for_selector(f"{ANSWER}:has-text('word')")
    page.keyboard.press("Escape") if way == "key" else page.click("#stop")
    page.wait_for_selector(DONE)
    assert "word" in page.inner_text(ANSWER)
    assert "stopped" in page.inner_text(".message.assistant .foot")
    end = time.monotonic() + 60
    while not server.num_dropped:
        assert time.monotonic() < end, "the server still answers"
        page.wait_for_timeout(10)
    say("go on")
    page.wait_for_selector(f"{DONE} >> nth=1")
    assert len(server.requests[-1]["messages"]) == 3


def test_the_keyboard_alone_is_enough(page: Any, server: ScriptedServer) -> None:
    page.wait_for_selector("#prompt:focus")
    page.keyboard.type("first line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    assert server.requests == []
    page.keyboard.press("Enter")
    page.wait_for_selector(DONE)
    assert server.requests[0]["messages"][-1]["content"] == "first line\nsecond line"
    assert page.input_value("#prompt") == ""
    page.keyboard.press("Enter")
    assert len(server.requests) == 1, "there was nothing to send"


def test_whatever_has_the_focus_shows_it(page: Any) -> None:
    seen = """() => {
      const { outlineStyle } = getComputedStyle(document.activeElement);
      const { boxShadow } = getComputedStyle(document.activeElement.parentElement);
      return outlineStyle !== 'none' || boxShadow !== 'none';
    }"""
    page.wait_for_selector("#heat:visible")
    shown = {}
    for _ in range(12):
        page.keyboard.press("Tab")
        shown[page.evaluate("document.activeElement.id || document.activeElement.tagName")] = (
            page.evaluate(seen)
        )
    shown.pop("BODY", None)  # on its way around, the focus leaves the page
    assert {"new-chat", "open-settings", "toggle-experts", "prompt", "SUMMARY"} <= shown.keys()
    assert all(shown.values()), shown


def test_every_control_has_a_name(page: Any) -> None:
    controls = page.locator("button, input, select, textarea")
    named = "all => all.map(e => Boolean(e.labels?.length || e.ariaLabel || e.textContent.trim()))"
    assert all(controls.evaluate_all(named))


def test_a_refusal_is_shown_in_place_and_can_be_tried_again(
    page: Any, server: ScriptedServer, say: Any
) -> None:
    say("refuse")
    page.wait_for_selector(".fault:has-text('the prompt is too long')")
    page.click(".fault button")
    end = time.monotonic() + 60
    while len(server.requests) < 2:
        assert time.monotonic() < end, "it was not tried again"
        page.wait_for_timeout(10)
    page.wait_for_function("() => document.querySelectorAll('.fault').length === 1")
    assert page.locator(".message.user").count() == 1


def test_a_question_without_an_answer_is_not_sent_again(
    page: Any, server: ScriptedServer, say: Any
) -> None:
    say("refuse")
    page.wait_for_selector(".fault")
    say("hello")
    page.wait_for_selector(f"{DONE} >> nth=1")
    assert [each["content"] for each in server.requests[-1]["messages"]] == ["hello"]
    assert page.locator(".fault").count() == 1
    assert page.locator(".fault button").count() == 0


def test_a_question_stopped_at_once_can_be_changed(
    page: Any, server: ScriptedServer, say: Any
) -> None:
    server.answers["slow"], server.pause = [{}, {}, {}], 5
    say("slow")
    page.wait_for_selector("#stop:visible")
    page.keyboard.press("Escape")
    page.wait_for_selector("#send:visible")
    assert page.input_value("#prompt") == "slow"
    assert page.locator(".message").count() == 0
    assert page.is_visible("#welcome")


def test_what_came_before_a_failure_stays(page: Any, server: ScriptedServer, say: Any) -> None:
    server.answers["break"] = words("so far so good")
    say("break")
    page.wait_for_selector(".fault:has-text('the disk failed')")
    assert page.inner_text(ANSWER) == "so far so good"


def test_reasoning_is_folded(page: Any, server: ScriptedServer, say: Any) -> None:
    server.answers["why"] = [{"reasoning_content": "Let me think."}, *words("Because.")]
    say("why")
    page.wait_for_selector(DONE)
    assert page.inner_text(ANSWER) == "Because."
    assert not page.is_visible("text=Let me think.")
    page.click(".reasoning summary")
    assert page.is_visible("text=Let me think.")
    say("and?")
    page.wait_for_selector(f"{DONE} >> nth=1")
    assert "think" not in str(server.requests[-1]["messages"])


def test_settings_go_with_the_request_and_stay(page: Any, server: ScriptedServer, say: Any) -> None:
    page.click("#open-settings")
    given = {
        "temperature": 0.2,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "max_tokens": 64,
        "seed": 3,
    }
    for name, value in given.items():
        page.fill(f"[name={name}]", str(value))
    page.fill("[name=system]", "Be brief.")
    page.select_option("[name=thinking]", "off")
    page.reload()
    say("hello")
    page.wait_for_selector(DONE)
    body = server.requests[0]
    assert {name: body[name] for name in given} == given
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    page.click("#open-settings")
    page.click("#reset-settings")
    page.click("text=Done")
    say("hello")
    page.wait_for_selector(f"{DONE} >> nth=1")
    assert not set(given) & set(server.requests[1])


def test_a_key_is_asked_for_and_not_kept(page: Any, server: ScriptedServer, say: Any) -> None:
    server.key = "sesame"
    page.reload()
    page.wait_for_selector("[name=key]:focus")
    page.keyboard.type("sesame")
    page.keyboard.press("Enter")
    page.wait_for_selector("#model:has-text('Scripted')")
    say("hello")
    page.wait_for_selector(f"{ANSWER}:has-text('You said')")
    assert "sesame" not in page.evaluate("JSON.stringify(localStorage)")


def test_the_end_is_followed_until_the_reader_scrolls_up(
    page: Any, server: ScriptedServer, say: Any
) -> None:
    server.answers["long"] = words("line\n\n" * 400)
    server.pause = 0.004
    left = (
        "(e => e.scrollHeight - e.clientHeight - e.scrollTop)(document.getElementById('scroller'))"
    )
    say("long")
    page.wait_for_function("() => document.getElementById('scroller').scrollTop > 300")
    page.wait_for_function(f"() => {left} < 48")
    page.hover("#messages")
    page.mouse.wheel(0, -250)
    page.wait_for_selector("#newest:visible")
    page.wait_for_selector(DONE)
    assert page.evaluate(left) > 200
    page.click("#newest")
    page.wait_for_function(f"() => {left} < 48")


def test_a_long_prompt_shows_how_far_it_is(page: Any, server: ScriptedServer, say: Any) -> None:
    server.progress = [512 * step for step in range(1, 12)]
    server.pause, server.held_after = 0.2, 8
    server.answers["long"] = words("Done.")
    say("long")
    page.wait_for_selector(".prefill:has-text('tokens/s')")
    shown = page.inner_text(".prefill")
    assert "Reading the prompt: " in shown
    assert " of 6000 tokens, " in shown
    assert shown.endswith(" left")
    assert 0 < float(page.locator(".prefill progress").evaluate("each => each.value")) < 1
    server.held_after = None
    page.wait_for_selector(DONE)
    assert page.locator(".prefill").count() == 0
    assert server.requests[0]["return_progress"] is True


def test_a_short_prompt_shows_no_bar(page: Any, server: ScriptedServer, say: Any) -> None:
    server.progress, server.pause = [6000], 0.01
    say("short")
    page.wait_for_selector(DONE)
    assert page.locator(".prefill:visible").count() == 0


def test_a_reload_keeps_the_chat(page: Any, server: ScriptedServer, say: Any) -> None:
    server.answers["first"] = [{"reasoning_content": "Let me see."}, *words("An *answer*.")]
    say("first")
    page.wait_for_selector(DONE)
    page.reload()
    page.wait_for_selector(f"{DONE} em:has-text('answer')")
    assert page.inner_text(".message.user") == "first"
    assert "Let me see." in page.locator(".reasoning").text_content()
    assert page.locator("#welcome:visible").count() == 0
    say("second")
    page.wait_for_selector(f"{DONE} >> nth=1")
    assert server.requests[-1]["messages"] == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "An *answer*."},
        {"role": "user", "content": "second"},
    ]
    page.click("#new-chat")
    page.reload()
    page.wait_for_selector("#welcome:visible")
    assert page.locator(".message").count() == 0


def test_a_reload_within_an_answer_keeps_its_beginning(
    page: Any, server: ScriptedServer, say: Any
) -> None:
    server.answers["long"] = words("one two three four five six")
    server.pause, server.held_after = 0.01, 3
    say("long")
    page.wait_for_selector(f"{ANSWER}:has-text('two')")
    page.reload()
    page.wait_for_selector(f"{ANSWER}:has-text('two')")
    server.held_after = None


def test_a_reload_gives_an_unanswered_question_back(
    blank_page: Any, server: ScriptedServer
) -> None:
    kept = '[{"role": "user", "content": "never answered"}]'
    blank_page.evaluate("kept => sessionStorage.setItem('sharpi-chat', kept)", kept)
    blank_page.goto(server.url)
    blank_page.wait_for_selector("#welcome:visible")
    assert blank_page.input_value("#prompt") == "never answered"
