"""Stop strings over arbitrary pieces: cut at the first, hold back no more than needed."""

from hypothesis import given
from hypothesis import strategies as st

from sharpi.tokenizer.stream import StopFilter


def feed_all(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    filter_ = StopFilter(stops)
    out = ""
    for piece in pieces:
        out += filter_.feed(piece)
        if filter_.stopped:
            return out, True
    return out + filter_.flush(), False


@given(st.text("ab", max_size=40), st.text("ab", min_size=1, max_size=4), st.data())
def test_pieces_make_no_difference(text: str, stop: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, stopped = feed_all([stop], pieces)
    assert stopped == (stop in text)
    assert shown == (text[: text.index(stop)] if stop in text else text)


def test_text_that_cannot_become_a_stop_is_shown_at_once() -> None:
    filter_ = StopFilter(["END"])
    assert filter_.feed("hello E") == "hello "
    assert filter_.feed("x") == "Ex"


def test_the_earliest_of_several_stops_cuts() -> None:
    assert feed_all(["bb", "a"], ["xa", "bb"]) == ("x", True)


def test_without_stops_everything_passes() -> None:
    assert feed_all([], ["a", "b"]) == ("ab", False)
    assert feed_all([""], ["a"]) == ("a", False)


@given(st.data())
def test_stops_act_on_the_answer_alone(data: st.DataObject) -> None:
    opening = data.draw(st.sampled_from(["<think>", "\n<think>", ""]))
    thought = f"{opening}a STOP </thi\n\n</think>\n\n"
    text = f"{thought}b\n\nSTOP c"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    for stop, shown in (("STOP", f"{thought}b\n\n"), ("\n\n", f"{thought}b"), ("no", text)):
        filter_ = StopFilter([stop], (opening.strip(), "</think>"))
        out = ""
        for piece in pieces:
            out += "" if filter_.stopped else filter_.feed(piece)
        assert (out if filter_.stopped else out + filter_.flush()) == shown


def test_an_answer_without_reasoning_stops_as_well() -> None:
    filter_ = StopFilter(["STOP"], ("<think>", "</think>"))
    assert filter_.feed("<thin") == ""
    assert filter_.feed("g STOP") == "<thing "
    assert filter_.stopped
