"""Token reuse between turns: answers keep the ids that the model chose."""

from fake_engine import BOS, END, FakeTokenizer
from hypothesis import given
from hypothesis import strategies as st

from sharpi.cli.chat.prompt import Transcript

LETTER = FakeTokenizer().encode("a", add_bos=False, parse_special=False)[0] - ord("a")


class PairTokenizer(FakeTokenizer):
    """Merges "ab" into one id, so that a text has more than one tokenisation."""

    AB = 9999

    def encode(self, text: str, *, add_bos: bool, parse_special: bool) -> list[int]:
        parts = text.split("ab")
        ids = [BOS] if add_bos and not text.startswith("<bos>") else []
        for index, part in enumerate(parts):
            ids += [self.AB] if index else []
            ids += super().encode(part, add_bos=False, parse_special=parse_special)
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        return b"ab" if token_id == self.AB else super().token_bytes(token_id)


def letters(text: str) -> list[int]:
    return [ord(letter) + LETTER for letter in text]


def test_answers_keep_the_ids_the_model_chose() -> None:
    transcript = Transcript(PairTokenizer())
    first = transcript.ids_of("<bos>Q:")
    transcript.add_answer("ab", letters("ab"))  # the model spelled it, the tokeniser would merge
    assert transcript.ids_of("<bos>Q:ab<end>ab") == [
        *first,
        *letters("ab"),
        END,
        PairTokenizer.AB,
    ]


def test_rewritten_turn_keeps_what_comes_before_it() -> None:
    transcript = Transcript(PairTokenizer())
    first = transcript.ids_of("<bos>Q:")
    transcript.add_answer("<think>ab</think>ab", letters("<think>ab</think>ab"))
    assert transcript.ids_of("<bos>Q:ab<end>") == [*first, PairTokenizer.AB, END]


def test_ids_that_do_not_say_the_text_are_not_kept() -> None:
    transcript = Transcript(PairTokenizer())
    first = transcript.ids_of("Q:")
    transcript.add_answer("a", letters("a\nUser"))  # a stop string was cut off
    assert transcript.ids_of("Q:ab") == [*first, PairTokenizer.AB]


def test_bos_is_there_once() -> None:
    for text in ("<bos>Q", "Q"):
        assert Transcript(FakeTokenizer()).ids_of(text).count(BOS) == 1
    transcript = Transcript(FakeTokenizer())
    transcript.ids_of("Q")
    assert transcript.ids_of("Q and A").count(BOS) == 1


@given(st.lists(st.text("ab<>", max_size=6), min_size=1, max_size=6))
def test_ids_always_say_the_text(turns: list[str]) -> None:
    tokenizer = PairTokenizer()
    transcript = Transcript(tokenizer)
    text = ""
    for turn in turns:
        text += turn
        assert tokenizer.decode(transcript.ids_of(text)) == text
        transcript.add_answer("ab", letters("ab"))
        text += "ab"


@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_any_other_text_is_tokenised_afresh(first: str, second: str) -> None:
    tokenizer = PairTokenizer()
    transcript = Transcript(tokenizer)
    transcript.ids_of(first)
    assert tokenizer.decode(transcript.ids_of(second)) == second
