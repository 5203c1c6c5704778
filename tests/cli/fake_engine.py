"""An engine without a model: it gives scripted answers and records its calls."""

import json
import os
import sys
import time
import types
from dataclasses import dataclass, field
from typing import Any

from sharpi.errors import UsageError

BOS, END = 1, 2
_FIRST_LETTER = 10
_MARKERS = {"<bos>": BOS, "<end>": END}


class FakeTokenizer:
    """One id per character, and the markers `<bos>` and `<end>`."""

    add_bos = True
    bos_id = BOS
    end_ids = frozenset({END})
    notes: tuple[str, ...] = ()

    def encode(self, text: str, *, add_bos: bool, parse_special: bool) -> list[int]:
        ids = [BOS] if add_bos and not text.startswith("<bos>") else []
        while text:
            marker = next((each for each in _MARKERS if text.startswith(each)), None)
            if parse_special and marker:
                ids.append(_MARKERS[marker])
                text = text[len(marker) :]
            else:
                ids.append(ord(text[0]) + _FIRST_LETTER)
                text = text[1:]
        return ids

    adds_space = False

    def is_hidden(self, token_id: int) -> bool:
        return token_id < _FIRST_LETTER

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id - _FIRST_LETTER).encode() if token_id >= _FIRST_LETTER else b""

    def decode(self, ids: list[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode()


@dataclass
class FakeChatFormat:
    kind: str = "template"
    can_switch_thinking: bool = True
    thinking: list[bool | None] = field(default_factory=list)

    def render(self, messages: list[dict[str, str]], *, enable_thinking: bool | None = None) -> str:
        self.thinking.append(enable_thinking)
        turns = "".join(f"[{each['role']}]{each['content']}<end>" for each in messages)
        return f"<bos>{turns}[assistant]"


@dataclass
class FakeTimings:
    num_prompt_tokens: int = 10
    num_cached_tokens: int = 0
    prefill_seconds: float = 0.5
    num_generated_tokens: int = 5
    decode_seconds: float = 0.2
    first_token_seconds: float = 0.25
    prompt_tokens_per_second: float = 20.0
    decode_tokens_per_second: float = 25.0
    drafts = None


class FakeGeneration:
    """Yields the texts of a script; raises an exception that stands among them."""

    def __init__(
        self, script: list[Any], tokenizer: FakeTokenizer, finish_reason: str = "stop"
    ) -> None:
        self._pieces = self._run(script)
        self._tokenizer, self._end = tokenizer, finish_reason
        self.text, self.ids = "", list[int]()
        self.finish_reason: str | None = None
        self.timings = FakeTimings()
        self.num_prefilled = 0

    def interrupt(self, *, wanted: bool = True) -> None:
        pass

    def _run(self, script: list[Any]) -> Any:
        for piece in script:
            if isinstance(piece, BaseException):
                raise piece
            if isinstance(piece, float):
                time.sleep(piece)
                continue
            self.text += piece
            self.ids += self._tokenizer.encode(piece, add_bos=False, parse_special=False)
            yield piece
        self.finish_reason = self._end

    def __iter__(self) -> Any:
        return self._pieces

    def close(self) -> None:
        self._pieces.close()


class FakeSession:
    def __init__(self, engine: "FakeEngine") -> None:
        self._engine = engine
        self.tokens: list[int] = []

    def generate(
        self, prompt_ids: list[int], request: Any, *, constraint: Any = None
    ) -> FakeGeneration:
        self._engine.prompts.append(list(prompt_ids))
        self._engine.requests.append(request)
        self.tokens = list(prompt_ids)
        script = self._engine.scripts.pop(0) if self._engine.scripts else ["Paris", " it is."]
        return FakeGeneration(script, self._engine.tokenizer, self._engine.finish_reason)

    def reset(self) -> None:
        self.tokens = []


class FakeEngine:
    """Stands in for `load_engine`, too: calling it records the config and returns itself."""

    def __init__(self) -> None:
        self.tokenizer = FakeTokenizer()
        self.chat_format = FakeChatFormat()
        self.context_size = 64
        self.page_store = None
        self.notes: tuple[str, ...] = ()
        self.exit_notes: tuple[str, ...] = ()
        self.last_words: tuple[str, ...] = ()
        self.seconds_to_close = 0.0
        self.plan, self.streams_experts = None, False
        self.file = types.SimpleNamespace(tensors={})
        self.model_config = types.SimpleNamespace(architecture="fake", num_layers=2)
        self.runner = types.SimpleNamespace(settings=types.SimpleNamespace(num_threads=2))
        self.stats: Any = None
        self.finish_reason = "stop"  # of all answers
        self.scripts: list[list[Any]] = []
        self.prompts: list[list[int]] = []
        self.requests: list[Any] = []
        self.config: Any = None
        self.is_closed = False

    def __call__(self, config: Any, on_progress: Any = None, share: Any = None) -> "FakeEngine":
        self.config = config
        if on_progress:
            on_progress("loading", 0.5)
        return self

    def against_plan(self, timings: Any) -> None:
        return None

    def session(self) -> FakeSession:
        return FakeSession(self)

    def logits(self, ids: Any, num_prompt_tokens: int = 0) -> Any:
        import numpy as np

        if ids.min() < 0 or ids.max() >= 300:
            raise UsageError("token ids must be 0..299")
        return np.tile(np.asarray(ids, np.float32)[:, None], (1, 4))

    def prompt_text(self, index: int = -1) -> str:
        return self.tokenizer.decode(self.prompts[index])

    def expert_stats(self) -> Any:
        return self.stats

    def close(self) -> None:
        """Closes as the real engine does: its exit notes exist only afterwards."""
        time.sleep(self.seconds_to_close)
        self.exit_notes = self.last_words
        self.is_closed = True


def loader_module(engine: FakeEngine) -> types.ModuleType:
    """Returns the module that replaces sharpi.engine.loader in a test."""
    module = types.ModuleType("sharpi.engine.loader")
    module.load_engine = engine  # type: ignore[attr-defined]
    return module


if __name__ == "__main__":  # a process of its own, for signals and pipes: fake_engine.py ARGS...
    from sharpi.cli.main import main

    speaker = FakeEngine()
    speaker.chat_format.kind = "plain"
    speaker.scripts = [["One", " two", *([0.05, " more"] * 400)]]
    if "SCRIPTS" in os.environ:  # answers of a model with a template, as JSON
        speaker.chat_format.kind = "template"
        speaker.scripts = json.loads(os.environ["SCRIPTS"])
    speaker.seconds_to_close = 0.2
    speaker.last_words = tuple(os.environ.get("LAST_WORDS", "").split())
    sys.modules["sharpi.engine.loader"] = loader_module(speaker)
    sys.exit(main())
