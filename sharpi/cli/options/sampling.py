"""The options of the sampler; names and defaults are llama.cpp's."""

from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.cli.options.option import count, finite, option, positive
from sharpi.config import SamplingParams

_SAMPLING = SamplingParams()


class SamplingOptions(Struct, frozen=True):
    """The parameters of the sampler."""

    heading: ClassVar = "Sampling"

    temperature: Annotated[
        float,
        option(
            "--temp --temperature",
            "Randomness of sampling; 0 always takes the most likely token.",
            "T",
            min=0,
            callback=finite,
            is_everyday=True,
        ),
    ] = _SAMPLING.temperature
    top_k: Annotated[
        int, option("--top-k", "Keep the N most likely tokens; 0: all.", "N", min=0, callback=count)
    ] = _SAMPLING.top_k
    top_p: Annotated[
        float,
        option(
            "--top-p",
            "Keep the most likely tokens that make up P of the probability; 1: all.",
            "P",
            min=0,
            max=1,
            callback=finite,
        ),
    ] = _SAMPLING.top_p
    min_p: Annotated[
        float,
        option(
            "--min-p",
            "Keep tokens at least P times as likely as the most likely one; 0: all.",
            "P",
            min=0,
            max=1,
            callback=finite,
        ),
    ] = _SAMPLING.min_p
    repeat_penalty: Annotated[
        float,
        option(
            "--repeat-penalty --rep-penalty",
            "Make recent tokens less likely; 1: off.",
            "X",
            callback=positive,
        ),
    ] = _SAMPLING.repeat_penalty
    repeat_last_n: Annotated[
        int,
        option(
            "--repeat-last-n",
            "Number of recent tokens that the penalties consider; -1: the whole context.",
            "N",
            min=-1,
            callback=count,
        ),
    ] = _SAMPLING.penalty_last_n
    presence_penalty: Annotated[
        float,
        option(
            "--presence-penalty",
            "Subtracted once from the logit of each recent token; 0: off.",
            "X",
            callback=finite,
        ),
    ] = _SAMPLING.presence_penalty
    frequency_penalty: Annotated[
        float,
        option(
            "--frequency-penalty",
            "Subtracted from the logit of a token for each recent occurrence; 0: off.",
            "X",
            callback=finite,
        ),
    ] = _SAMPLING.frequency_penalty
    seed: Annotated[
        int,
        option(
            "-s --seed",
            "Seed of the sampler; the same seed gives the same text. -1: random.",
            "N",
            min=-1,
            max=2**32 - 1,
            is_everyday=True,
        ),
    ] = -1

    def params(self) -> SamplingParams:
        """Returns the sampling parameters; a negative seed means a random one."""
        return SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            penalty_last_n=self.repeat_last_n,
            seed=None if self.seed < 0 else self.seed,
        )
