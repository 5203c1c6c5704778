"""Every option of the command line, once: its names, its SHARPI_* variable, its range, its help.

Names and defaults are llama.cpp's where it has the option. The variable is the first long name in
capitals: `--ctx-size` is SHARPI_CTX_SIZE. An explicit flag wins over its variable, and an empty
variable counts as unset. Commands take these groups whole (see `grouping.py`).
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from sharpi.config import GenerationRequest, Precision, RunConfig, SamplingParams

InstructionSet = Literal["avx512_vnni", "avx2", "neon", "portable"]

_SAMPLING = SamplingParams()
_RUN = RunConfig(model=Path())
_LARGEST = 2**31 - 1  # counts are 32-bit in the native library


def option(names: str, help: str, metavar: str | None = None, **settings: Any) -> Any:
    """A Typer option of these names, and the variable that goes with its first long name."""
    first_long = names[names.index("--") + 2 :].split()[0].split("/")[0]
    variable = "SHARPI_" + first_long.replace("-", "_").upper()
    return typer.Option(
        *names.split(), help=help, metavar=metavar, envvar=variable, show_envvar=True, **settings
    )


def count(value: int | None) -> int | None:
    if value is not None and value > _LARGEST:
        raise typer.BadParameter(f"{value} is more than {_LARGEST}.")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


def _positive(value: float) -> float:
    if not value > 0 or not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number above 0.")
    return value


def _stop_strings(
    context: typer.Context, param: typer.CallbackParam, value: list[str]
) -> list[str]:
    """Undo Typer's splitting of a variable at blanks: stop strings may well hold some."""
    source = context.get_parameter_source(param.name or "")
    if source is None or source.name != "ENVIRONMENT":
        return value
    text = os.environ[str(param.envvar)]
    return [item for item in text.split("\n" if "\n" in text else ",") if item]


ModelOption = Annotated[
    str | None, option("-m --model", "The GGUF file, instead of MODEL.", "FILE")
]
PromptOption = Annotated[str | None, option("-p --prompt", "The prompt; '-' reads stdin.", "TEXT")]
PromptFileOption = Annotated[
    str | None,
    option(
        "-f --file", "Read the prompt from FILE ('-': stdin), less one newline at its end.", "FILE"
    ),
]
JsonOption = Annotated[bool, option("--json", "Print one JSON object instead of text for people.")]


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What the arithmetic runs on, and in which precision."""

    heading: ClassVar = "Machine"

    threads: Annotated[
        int | None,
        option(
            "-t --threads",
            "Threads for decode.",
            "N",
            min=1,
            max=1024,
            show_default="physical cores",
        ),
    ] = None
    threads_batch: Annotated[
        int | None,
        option(
            "-tb --threads-batch",
            "Threads for prefill.",
            "N",
            min=1,
            max=1024,
            show_default="as --threads",
        ),
    ] = None
    batch_size: Annotated[
        int, option("-b --batch-size", "Tokens prefilled together.", "N", min=1, callback=count)
    ] = _RUN.batch_size
    precision: Annotated[
        Precision,
        option(
            "--precision",
            "Precision of activations. auto: int16 for small models, int8 for others; f32 serves "
            "to check against other programs.",
        ),
    ] = _RUN.precision
    isa: Annotated[
        InstructionSet | None,
        option("--isa", "Instruction set of the CPU kernels.", show_default="the machine's best"),
    ] = None

    def run_config(
        self, model: Path, *, context_size: int | None = None, context_shift: bool = False
    ) -> RunConfig:
        """The engine's view of these options for one model file."""
        return RunConfig(
            model=model,
            context_size=context_size,
            num_threads=self.threads,
            num_batch_threads=self.threads_batch,
            batch_size=self.batch_size,
            precision=self.precision,
            context_shift=context_shift,
            instruction_set=self.isa,
        )


@dataclass(frozen=True, slots=True)
class ContextOptions:
    """How many tokens are remembered, and what happens when they are too many."""

    heading: ClassVar = "Context"

    ctx_size: Annotated[
        int | None,
        option(
            "-c --ctx-size",
            "Tokens of context.",
            "N",
            min=1,
            callback=count,
            show_default="the model's, at most 4096",
        ),
    ] = None
    context_shift: Annotated[
        bool,
        option(
            "--context-shift/--no-context-shift",
            "When the context is full, forget its older half and go on.",
        ),
    ] = _RUN.context_shift


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen."""

    heading: ClassVar = "Sampling"

    temperature: Annotated[
        float,
        option(
            "--temp --temperature",
            "Spread of the choice; 0 always takes the likeliest token.",
            "T",
            min=0,
            callback=_finite,
        ),
    ] = _SAMPLING.temperature
    top_k: Annotated[
        int, option("--top-k", "Keep the N likeliest tokens; 0: all.", "N", min=0, callback=count)
    ] = _SAMPLING.top_k
    top_p: Annotated[
        float,
        option(
            "--top-p",
            "Keep the likeliest tokens that make up P of the probability; 1: all.",
            "P",
            min=0,
            max=1,
            callback=_finite,
        ),
    ] = _SAMPLING.top_p
    min_p: Annotated[
        float,
        option(
            "--min-p",
            "Keep tokens at least P times as likely as the likeliest; 0: all.",
            "P",
            min=0,
            max=1,
            callback=_finite,
        ),
    ] = _SAMPLING.min_p
    repeat_penalty: Annotated[
        float,
        option(
            "--repeat-penalty",
            "Make tokens seen lately less likely; 1: off.",
            "X",
            callback=_positive,
        ),
    ] = _SAMPLING.repeat_penalty
    repeat_last_n: Annotated[
        int,
        option(
            "--repeat-last-n",
            "How many tokens back the penalties look; -1: the whole context.",
            "N",
            min=-1,
            callback=count,
        ),
    ] = _SAMPLING.penalty_last_n
    presence_penalty: Annotated[
        float,
        option(
            "--presence-penalty",
            "Taken once from a token's logit if it was seen lately; 0: off.",
            "X",
            callback=_finite,
        ),
    ] = _SAMPLING.presence_penalty
    frequency_penalty: Annotated[
        float,
        option(
            "--frequency-penalty",
            "Taken from a token's logit for each time it was seen lately; 0: off.",
            "X",
            callback=_finite,
        ),
    ] = _SAMPLING.frequency_penalty
    seed: Annotated[
        int,
        option(
            "-s --seed",
            "The same seed gives the same text; -1 draws one.",
            "N",
            min=-1,
            max=2**32 - 1,
        ),
    ] = -1

    def params(self) -> SamplingParams:
        """The engine's view of these options."""
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


@dataclass(frozen=True, slots=True)
class LengthOptions:
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


@dataclass(frozen=True, slots=True)
class ConversationOptions:
    """How text becomes a conversation with the model's chat template."""

    heading: ClassVar = "Conversation"

    raw: Annotated[bool, option("--raw", "Continue the text: no chat template.")] = False
    system: Annotated[
        str | None, option("-sys --system", "The system message, before the conversation.", "TEXT")
    ] = None
    think: Annotated[
        bool | None,
        option(
            "--think/--no-think",
            "Ask for reasoning, or none, of a model whose template has the choice.",
        ),
    ] = None


def _count_list(text: str) -> str:
    for item in text.split(","):
        if not item.strip().isdecimal() or int(item) > _LARGEST:
            raise typer.BadParameter(
                f"{item.strip()!r} in {text!r} is not a count, as in '128,512'."
            )
    return text


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """What is measured; names and defaults are llama-bench's."""

    heading: ClassVar = "Tests"

    n_prompt: Annotated[
        str,
        option(
            "-p --n-prompt", "Tokens of the prefill tests; 0: none.", "N,...", callback=_count_list
        ),
    ] = "512"
    n_gen: Annotated[
        str,
        option("-n --n-gen", "Tokens of the decode tests; 0: none.", "N,...", callback=_count_list),
    ] = "128"
    n_depth: Annotated[
        str,
        option(
            "-d --n-depth",
            "Tokens in the KV cache before a test begins.",
            "N,...",
            callback=_count_list,
        ),
    ] = "0"
    repetitions: Annotated[
        int, option("-r --repetitions", "Times each test is run.", "N", min=1, max=10000)
    ] = 5

    @staticmethod
    def counts(text: str) -> list[int]:
        """The numbers of one of the lists."""
        return [int(item) for item in text.split(",")]
