"""The options of `sharpi bench`."""

from typing import Annotated, ClassVar

import click
from msgspec import Struct

from sharpi.cli.options.option import LARGEST_COUNT, option


def _count_list(text: str) -> str:
    for item in text.split(","):
        if not item.strip().isdecimal() or int(item) > LARGEST_COUNT:
            raise click.BadParameter(
                f"{item.strip()!r} in {text!r} is not a count, as in '128,512'."
            )
    return text


class BenchmarkOptions(Struct, frozen=True):
    """The tests to run; names and defaults are llama-bench's."""

    heading: ClassVar = "Tests"

    n_prompt: Annotated[
        str,
        option(
            "-p --n-prompt",
            "Tokens of the prefill tests; 0: none.",
            "N,...",
            callback=_count_list,
            is_everyday=True,
        ),
    ] = "512"
    n_gen: Annotated[
        str,
        option(
            "-n --n-gen",
            "Tokens of the decode tests; 0: none.",
            "N,...",
            callback=_count_list,
            is_everyday=True,
        ),
    ] = "128"
    n_depth: Annotated[
        str,
        option(
            "-d --n-depth",
            "Tokens in the KV cache before a test begins.",
            "N,...",
            callback=_count_list,
            is_everyday=True,
        ),
    ] = "0"
    repetitions: Annotated[
        int,
        option("-r --repetitions", "Runs of each test.", "N", min=1, max=10000, is_everyday=True),
    ] = 5

    @staticmethod
    def counts(text: str) -> list[int]:
        """Parses the numbers in the value of -p, -n or -d, which commas separate."""
        return [int(item) for item in text.split(",")]
