"""A conversation that was kept as text finds the pages of its own tokens on disk."""

from pathlib import Path

import pytest

from sharpi.cli.chat.conversation import Conversation
from sharpi.cli.options.conversation import ConversationOptions
from sharpi.config import GenerationRequest, RunConfig, SamplingParams
from sharpi.engine.loader import load_engine
from sharpi.engine.prompt_cache.answer_ids import AnswerIds, answer_file

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
