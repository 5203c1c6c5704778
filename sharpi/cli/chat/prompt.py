"""Turns the user's text into the tokens of a prompt, with or without a chat template.

A Transcript keeps the tokens of a conversation. A text has many tokenizations, and a model does not
always generate the one that the tokenizer would choose: tokenizing the full text again for every
answer would often produce other ids, which do not match the KV cache. So only the new text is
tokenized, and answers keep the ids that the model generated. A segment ends where a template wrote
a marker or the model stopped, so no word is split. If a template rewrites earlier messages (several
drop old reasoning), the segments before the first change are still reused.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from sharpi.cli.output.terminal import print_note, print_stderr
from sharpi.errors import UsageError
from sharpi.settings.conversation import ConversationOptions

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine
    from sharpi.tokenizer.tokenizer import Tokenizer


class Prompt(Struct, frozen=True):
    """The prompt of one answer, as text and as token ids."""

    text: str  # as the model receives it
    ids: list[int]  # as the model receives them
    echo: str  # printed before the answer: the text to continue, or "" for a chat


def refuse_contradictions(options: ConversationOptions) -> None:
    """Raises UsageError for options that need a chat template, if --raw disables it."""
    if options.raw and options.system is not None:
        raise UsageError("--raw and --system contradict each other; a raw prompt has no roles")
    if options.raw and options.think is not None:
        raise UsageError("--raw and --think contradict each other; a raw prompt has no template")


def note_useless_options(engine: "Engine", options: ConversationOptions) -> None:
    """Prints a note if --think or --no-think was given but the chat template has no such switch."""
    if options.think is None or engine.chat_format.can_switch_thinking:
        return
    flag = "--think" if options.think else "--no-think"
    print_note(f"{flag} has no effect: this model's chat template has no switch for reasoning")


def has_no_template(engine: "Engine", options: ConversationOptions) -> bool:
    """Returns whether no chat template is used: with --raw, or if the file has none.

    Raises UsageError for --system if the file has no template.
    """
    if options.raw:
        return True
    has_template = engine.chat_format.kind != "plain"
    if not has_template and options.system is not None:
        raise UsageError("--system: this model has no chat template; put the text in the prompt")
    return not has_template


def whole_prompt(engine: "Engine", text: str, options: ConversationOptions) -> Prompt:
    """Returns the prompt of one question; raises TemplateError or UsageError."""
    if has_no_template(engine, options):
        return Prompt(text, opening_ids(engine.tokenizer, text), echo=text)
    messages = [{"role": "user", "content": text}]
    if options.system is not None:
        messages.insert(0, {"role": "system", "content": options.system})
    rendered = engine.chat_format.render(messages, enable_thinking=options.think)
    return Prompt(rendered, opening_ids(engine.tokenizer, rendered), echo="")


def show_prompt(tokenizer: "Tokenizer", text: str, ids: list[int]) -> None:
    """Prints the prompt as the model receives it, and each of its tokens, to stderr."""
    print_stderr(f"prompt: {text!r}, {len(ids)} tokens")
    for token_id in ids:
        print_stderr(
            f"{token_id:6d} -> {tokenizer.token_bytes(token_id).decode('utf-8', 'replace')!r}"
        )


def opening_ids(tokenizer: "Tokenizer", text: str) -> list[int]:
    """Tokenizes the text at the beginning of a sequence; adds BOS if the vocabulary requires it."""
    return tokenizer.encode(text, add_bos=tokenizer.add_bos, parse_special=True)


FindIds = Callable[[str], list[int]]  # returns the ids of an answer; empty if they are unknown


class Transcript:
    """Stores segments of (text, ids), which together are what the KV cache holds."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._segments: list[tuple[str, list[int]]] = []

    def ids_of(self, text: str) -> list[int]:
        """Returns the ids of the whole `text`, with stored ids for its known segments."""
        position = self._drop_what_differs(text)
        rest = text[position:]
        if rest:
            self._segments.append(self._encoded(rest, is_opening=position == 0))
        return [token for _, ids in self._segments for token in ids]

    def num_known(self, text: str) -> int:
        """Returns how many stored tokens `text` begins with; drops all stored tokens after them."""
        self._drop_what_differs(text)
        return sum(len(ids) for _, ids in self._segments)

    def recall(self, text: str, answers: Iterable[str], find: FindIds) -> None:
        """Stores the ids that the model generated for earlier `answers` in `text`.

        `find` looks them up, so that a conversation saved as text has its original ids again.
        """
        at = position = self._drop_what_differs(text)
        begin = 0
        for answer in answers:
            start = text.find(answer, begin)
            if start < 0 or not answer:
                return
            begin = start + len(answer)
            if start >= position and (ids := find(answer)) and self._text_of(ids) == answer:
                if start > at:
                    self._segments.append(self._encoded(text[at:start], is_opening=at == 0))
                self._segments.append((answer, ids))
                at = begin

    def _encoded(self, text: str, *, is_opening: bool) -> tuple[str, list[int]]:
        return text, self._encode(text, is_opening=is_opening)

    def add_answer(self, text: str, ids: list[int]) -> None:
        """Stores the tokens that the model generated, if they decode to exactly `text`.

        They do not if a stop string was cut off or the last character is incomplete. Then `ids_of`
        tokenizes the answer like any other text.
        """
        if ids and self._text_of(ids) == text:
            self._segments.append((text, list(ids)))

    def _text_of(self, ids: list[int]) -> str:
        """Decodes `ids` as streaming does, which keeps a leading space."""
        from sharpi.tokenizer.stream import StreamDecoder

        decoder = StreamDecoder(self._tokenizer)
        return "".join(map(decoder.feed, ids)) + decoder.flush()

    def _drop_what_differs(self, text: str) -> int:
        """Drops all segments but those that `text` begins with; returns their total characters."""
        position = 0
        for count, (segment, _) in enumerate(self._segments):
            if not text.startswith(segment, position):
                del self._segments[count:]
                break
            position += len(segment)
        return position

    def _encode(self, text: str, *, is_opening: bool) -> list[int]:
        if is_opening:
            return opening_ids(self._tokenizer, text)
        return self._tokenizer.encode(text, add_bos=False, parse_special=True)
