"""Token reuse between turns: answers keep the ids that the model chose."""

from pathlib import Path

import pytest
from fake_engine import BOS, END, FakeTokenizer
from hypothesis import given
from hypothesis import strategies as st

from sharpi.cli.chat.conversation import Conversation, Transcript
from sharpi.engine.loader import load_engine
from sharpi.engine.prompt_cache.cache_folder import AnswerIds, answer_file
from sharpi.settings import GenerationRequest, RunConfig, SamplingParams
from sharpi.settings.sampling import ConversationOptions

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


pytestmark = pytest.mark.native
DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
# Hot enough that tokens are chosen which the tokenizer would not choose for the text.
HOT = SamplingParams(temperature=3, top_k=0, top_p=1, min_p=0, seed=3)
REQUEST = GenerationRequest(max_tokens=60, sampling=HOT)


def test_the_next_turn_of_a_resumed_conversation_is_read(tmp_path: Path) -> None:
    config = RunConfig(model=DEMO, context_size=512, prompt_cache=tmp_path)
    with load_engine(config):
        pass  # the file is read whole once
    with load_engine(config) as engine:
        conversation = Conversation(engine, REQUEST, ConversationOptions())
        for question in ("Once there was a red ball. ", "It was lost. "):
            generation = conversation.ask(question)
            list(generation)
            conversation.keep(generation)
        num_tokens, messages = conversation.num_tokens, conversation.messages
        ids = [token for _, segment in conversation._transcript._segments for token in segment]
    with load_engine(config) as engine:
        conversation = Conversation(engine, REQUEST, ConversationOptions())
        conversation.restore(messages, "the log")
        generation = conversation.ask("The end. ")
        list(generation)
        again = [token for _, segment in conversation._transcript._segments for token in segment]
        canonical = engine.tokenizer.encode(
            conversation.prompt, add_bos=engine.tokenizer.add_bos, parse_special=True
        )
    assert again[: len(ids)] == ids
    assert canonical[: len(ids)] != ids
    assert generation.timings.num_cached_tokens > num_tokens - 8  # fewer have no record


def test_tokens_that_were_changed_are_not_found(tmp_path: Path) -> None:
    answers = AnswerIds(tmp_path)
    answers.keep("a ball", [3, 4])
    assert answers.find("a ball") == [3, 4]
    assert answers.find("a doll") == []
    path = tmp_path / answer_file("a ball")
    for content in (b"", b"?" * 24, path.read_bytes()[:-1]):
        path.write_bytes(content)
        assert answers.find("a ball") == []


def test_a_folder_that_is_gone_loses_no_answer(tmp_path: Path) -> None:
    answers = AnswerIds(tmp_path / "gone")
    answers.keep("a ball", [3, 4])
    assert answers.find("a ball") == []
