"""The options that say where an answer ends."""

import os
from typing import Annotated, ClassVar

import typer
from msgspec import Struct

from sharpi.cli.options.option import count, option
from sharpi.cli.options.sampling import SamplingOptions
from sharpi.config import GenerationRequest


def _stop_strings(
    context: typer.Context, param: typer.CallbackParam, value: list[str]
) -> list[str]:
    """Undo Typer's splitting of a variable at blanks: stop strings may well hold some."""
    source = context.get_parameter_source(param.name or "")
    if source is None or source.name != "ENVIRONMENT":
        return value
    text = os.environ[str(param.envvar)]
    return [item for item in text.split("\n" if "\n" in text else ",") if item]


class LengthOptions(Struct, frozen=True):
    """Where an answer ends."""

    heading: ClassVar = "Length"

    predict: Annotated[
        int,
        option(
            "-n --predict --n-predict",
            "Tokens to generate at most; -1: until the model ends.",
            "N",
            min=-1,
            callback=count,
        ),
    ] = -1
    stop: Annotated[
        list[str] | None,
        option(
            "--stop",
            "End before TEXT; may be given again. The variable holds one per line, or several "
            "on one line with commas between.",
            "TEXT",
            callback=_stop_strings,
        ),
    ] = None
    ignore_eos: Annotated[
        bool, option("--ignore-eos", "Never take the model's own end of text.")
    ] = False

    def request(self, sampling: SamplingOptions) -> GenerationRequest:
        """The engine's view of one continuation."""
        return GenerationRequest(
            max_tokens=self.predict,
            stop=tuple(text for text in self.stop or () if text),
            ignore_end=self.ignore_eos,
            sampling=sampling.params(),
        )
