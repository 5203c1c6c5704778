"""A host with scripted answers, a real tokenizer and a real chat template."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from gguf import TokenType

from sharpi.constraints.constraint import Constraint
from sharpi.engine.sampling.generation_state import FinishInfo, TextDelta, Timings
from sharpi.engine.sampling.sampler import SampledToken
from sharpi.serve.host.answer_group import AnswerRequest, Item
from sharpi.serve.host.model_host import ModelHostSettings
from sharpi.serve.http.errors import unknown_model
from sharpi.settings import GenerationRequest
from sharpi.tokenizer.byte_pair import byte_of_letter
from sharpi.tokenizer.chat_template import ChatFormat, chat_format
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import Vocabulary

MODEL = "scripted"
SPECIAL = ["<|im_start|>", "<|im_end|>"]
PLAIN_MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ tools | map("tojson") | join("\\n") }}
For each call: <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", \
"arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""


def scripted_tokenizer(
    template: str | None = TEMPLATE, special: Sequence[str] = SPECIAL
) -> Tokenizer:
    """Returns a tokenizer of the 256 bytes, control tokens and ChatML's marks of calls.

    The second control token ends answers.
    """
    letters = sorted(byte_of_letter(), key=byte_of_letter().__getitem__)
    tokens = [*letters, *special, *PLAIN_MARKS]
    kinds = [TokenType.NORMAL] * 256 + [TokenType.CONTROL] * len(special)
    kinds += [TokenType.USER_DEFINED] * len(PLAIN_MARKS)
    vocabulary = Vocabulary(
        "gpt2",
        tokens=tokens,
        kinds=[int(kind) for kind in kinds],
        pre_tokenizer="gpt-2",
        special_ids={"eos": 257},
        chat_template=template,
    )
    return Tokenizer(vocabulary)


@dataclass
class Asked:
    """A request of the APIs to the host."""

    prompt: str
    request: GenerationRequest
    constraint: Constraint | None


@dataclass
class ScriptedHost:
    """Gives scripted answers.

    `scripts`: the texts of the next answers in turn, the last one for all later ones; exceptions
    are raised. `finish_info`: how they end. `num_cached`: the tokens that it reports as found in
    the KV cache.
    """

    scripts: Sequence[Sequence[str | Exception] | str] = ("Hello there.",)
    finish_info: FinishInfo = field(default_factory=lambda: FinishInfo("stop"))
    num_cached: int = 0
    template: str | None = TEMPLATE
    per_model_cache: dict[type, Any] = field(default_factory=dict)
    settings: ModelHostSettings = field(
        default_factory=lambda: ModelHostSettings(MODEL, ("alias", "local"))
    )
    model_id = MODEL
    context_size = 100_000
    created = 1_700_000_000

    def __post_init__(self) -> None:
        self.reset()
        self.tokenizer = scripted_tokenizer(self.template)
        self.chat_format: ChatFormat = chat_format(self.tokenizer)
        self.config = SimpleNamespace(context_shift=False)

    def reset(self) -> None:
        """Drops all records and restores the first script."""
        self.asked: list[Asked] = []
        self.notes: list[str] = []
        self.num_open = 0
        self.scripts, self.finish_info, self.num_cached = ("Hello there.",), FinishInfo("stop"), 0

    def wait_until_nothing_is_open(self) -> None:
        """Waits for open answers to end, and fails after a minute."""
        deadline = time.monotonic() + 60
        while self.num_open:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def note(self, lines: Iterable[str]) -> dict[str, str]:
        self.notes += lines
        return {"X-Sharpi-Note": "; ".join(lines)} if lines else {}

    def require_model(self, name: str) -> None:
        if name not in (MODEL, *self.settings.aliases):
            raise unknown_model(name, MODEL)

    async def ready(self) -> Any:
        return SimpleNamespace(engine=self, per_model_cache=self.per_model_cache)

    @contextmanager
    def admitted(self, scope: Any) -> Iterator[None]:
        yield

    def answers(self, asked: Sequence[AnswerRequest]) -> "ScriptedAnswers":
        return ScriptedAnswers(self, asked)

    async def items(self, asked: AnswerRequest) -> AsyncGenerator[Item, None]:
        prompt_ids, request, constraint = asked.prompt_ids, asked.request, asked.constraint
        number = min(len(self.asked), len(self.scripts) - 1)
        prompt = self.tokenizer.decode(prompt_ids, show_special=True)
        self.asked.append(Asked(prompt, request, constraint))
        self.num_open += 1
        try:
            count = 0
            script = self.scripts[number]
            for text in [script] if isinstance(script, str) else script:
                if isinstance(text, Exception):
                    raise text
                ids = self.tokenizer.encode(text, add_bos=False, parse_special=True)
                count += len(ids)
                await asyncio.sleep(0)
                shown = "" if ids and ids[-1] == self.finish_info.end_token else text
                yield TextDelta(shown, tuple(self._choice(each, request) for each in ids))
            timings = Timings(num_cached_tokens=self.num_cached, num_generated_tokens=count)
            finish_info = self.finish_info
            if finish_info.error is not None:
                raise finish_info.error
            yield FinishInfo(
                finish_info.reason,
                timings,
                finish_info.end_token,
                finish_info.stop,
                finish_info.error,
            )
        finally:
            self.num_open -= 1

    def _choice(self, token_id: int, request: GenerationRequest) -> SampledToken:
        if request.num_logprobs is None:
            return SampledToken(token_id)
        best = tuple((each, -0.5 - each) for each in range(request.num_logprobs))
        return SampledToken(token_id, -0.25, best)


class ScriptedAnswers:
    """The answers to one request, an item of each in turn; the others begin after the first."""

    def __init__(self, host: ScriptedHost, asked: Sequence[AnswerRequest]) -> None:
        self._waiting = deque(enumerate(map(host.items, asked)))
        self._running = deque([self._waiting.popleft()])

    @property
    def is_open(self) -> bool:
        return bool(self._running or self._waiting)

    async def next(self) -> tuple[int, Item]:
        number, items = self._running.popleft()
        item = await anext(items)
        self._running += self._waiting
        self._waiting.clear()
        if isinstance(item, FinishInfo):
            await items.aclose()
        else:
            self._running.append((number, items))
        return number, item

    def end(self, number: int) -> None:
        for each in list(self._running):
            if each[0] == number:
                self._running.remove(each)
                self._close(each[1])

    def close(self) -> None:
        for _, items in self._running:
            self._close(items)
        self._running.clear()
        self._waiting.clear()

    def _close(self, items: AsyncGenerator[Item, None]) -> None:
        """Closes a generator that is suspended at a yield; it must end without awaiting."""
        with contextlib.suppress(StopIteration):
            items.aclose().send(None)
