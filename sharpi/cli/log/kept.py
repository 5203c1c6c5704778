"""A conversation as the log keeps it."""

from msgspec import Struct

Message = dict[str, str]


class KeptConversation(Struct, frozen=True):
    """One conversation in the log; `messages` is empty if it comes from `LogStore.listed`."""

    id: int
    kind: str  # "chat" or "run"
    model: str  # the path of the model's file
    started: float  # seconds since 1970
    updated: float
    num_messages: int
    title: str  # the beginning of the first question
    messages: tuple[Message, ...] = ()
