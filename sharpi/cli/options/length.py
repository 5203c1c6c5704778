"""The options that end an answer."""

from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.cli.options.option import count, option
from sharpi.cli.options.sampling import SamplingOptions
from sharpi.config import GenerationRequest


def _stop_strings(text: str) -> list[str]:
    """Splits the value of SHARPI_STOP at newlines, or at commas if it has no newline."""
    return [item for item in text.split("\n" if "\n" in text else ",") if item]


class LengthOptions(Struct, frozen=True):
    """The options that end an answer."""

    heading: ClassVar = "Length"

    predict: Annotated[
        int,
        option(
            "-n --predict --n-predict",
            "Maximum number of tokens to generate; -1: until the model ends.",
            "N",
            min=-1,
            callback=count,
            is_everyday=True,
        ),
    ] = -1
    stop: Annotated[
        list[str] | None,
        option(
            "--stop",
            "Stop before TEXT; may be repeated. The variable holds one per line, or several on "
            "one line separated by commas.",
            "TEXT",
            split=_stop_strings,
        ),
    ] = None
    ignore_eos: Annotated[
        bool, option("--ignore-eos", "Continue after the model's end-of-text token.")
    ] = False

    def request(self, sampling: SamplingOptions) -> GenerationRequest:
        """Returns the generation request of one answer, with these limits and `sampling`."""
        return GenerationRequest(
            max_tokens=self.predict,
            stop=tuple(text for text in self.stop or () if text),
            ignore_end=self.ignore_eos,
            sampling=sampling.params(),
        )
