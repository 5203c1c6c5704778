"""Reasoning of a model, dimmed on its way to the screen."""


class ThoughtStyle:
    def __init__(self, generation: object, is_styled: bool) -> None:
        pass

    def __call__(self, piece: str) -> str:
        return piece
