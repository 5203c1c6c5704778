"""A Watcher that records its calls."""


class Listener:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.begun: list[tuple[str, int, int]] = []
        self.received = 0
        self.num_ended = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, path: str, size: int, received: int) -> None:
        self.begun.append((path, size, received))
        self.received = received

    def advance(self, count: int) -> None:
        self.received += count

    def end(self) -> None:
        self.num_ended += 1
