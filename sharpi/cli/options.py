"""Every option of the command line, once: its names, its SHARPI_* variable, its range, its help.

Names and defaults are llama.cpp's where it has the option. The variable is the first long name in
capitals: `--ctx-size` is SHARPI_CTX_SIZE. An explicit flag wins over its variable, and an empty
variable counts as unset. Commands take these groups whole (see `grouping.py`).
"""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sharpi.config import GenerationRequest, Precision, RunConfig, SamplingParams

InstructionSet = Literal["avx512_vnni", "avx2", "neon", "portable"]

_SAMPLING = SamplingParams()
_RUN = RunConfig(model=Path())
_LARGEST = 2**31 - 1  # counts are 32-bit in the native library
_MACHINE, _CONTEXT = "Machine", "Context"
_SAMPLER, _LENGTH, _CONVERSATION = "Sampling", "Length", "Conversation"


def _option(*names: str, panel: str | None = None, **settings: Any) -> Any:
    """A Typer option with the variable that goes with its first long name."""
    long_name = next(name for name in names if name.startswith("--")).split("/")[0]
    variable = "SHARPI_" + long_name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(
        *names, envvar=variable, show_envvar=True, rich_help_panel=panel, **settings
    )


def _count(value: int | None) -> int | None:
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
    str | None, _option("-m", "--model", metavar="FILE", help="The GGUF file, instead of MODEL.")
]
PromptOption = Annotated[
    str | None, _option("-p", "--prompt", metavar="TEXT", help="The prompt; '-' reads stdin.")
]
PromptFileOption = Annotated[
    str | None,
    _option(
        "-f",
        "--file",
        metavar="FILE",
        help="Read the prompt from FILE ('-': stdin), less one newline at its end.",
    ),
]
JsonOption = Annotated[
    bool, _option("--json", help="Print one JSON object instead of text for people.")
]


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What the arithmetic runs on, and in which precision."""

    threads: Annotated[
        int | None,
        _option(
            "-t",
            "--threads",
            min=1,
            max=1024,
            metavar="N",
            panel=_MACHINE,
            help="Threads for decode.",
            show_default="the physical cores",
        ),
    ] = None
    threads_batch: Annotated[
        int | None,
        _option(
            "-tb",
            "--threads-batch",
            min=1,
            max=1024,
            metavar="N",
            panel=_MACHINE,
            help="Threads for prefill.",
            show_default="as --threads",
        ),
    ] = None
    batch_size: Annotated[
        int,
        _option(
            "-b",
            "--batch-size",
            min=1,
            callback=_count,
            metavar="N",
            panel=_MACHINE,
            help="Tokens prefilled together.",
        ),
    ] = _RUN.batch_size
    precision: Annotated[
        Precision,
        _option(
            "--precision",
            panel=_MACHINE,
            help="8-bit activations, or float32 to check against other programs.",
        ),
    ] = _RUN.precision
    isa: Annotated[
        InstructionSet | None,
        _option(
            "--isa",
            panel=_MACHINE,
            help="The instruction set of the CPU kernels.",
            show_default="the best the machine has",
        ),
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

    ctx_size: Annotated[
        int | None,
        _option(
            "-c",
            "--ctx-size",
            min=1,
            callback=_count,
            metavar="N",
            panel=_CONTEXT,
            help="Tokens of context.",
            show_default="the model's, at most 4096",
        ),
    ] = None
    context_shift: Annotated[
        bool,
        _option(
            "--context-shift/--no-context-shift",
            panel=_CONTEXT,
            help="When the context is full, forget its older half instead of stopping.",
        ),
    ] = _RUN.context_shift


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How the next token is chosen."""

    temperature: Annotated[
        float,
        _option(
            "--temp",
            "--temperature",
            min=0,
            callback=_finite,
            metavar="T",
            panel=_SAMPLER,
            help="Spread of the choice; 0 always takes the likeliest token.",
        ),
    ] = _SAMPLING.temperature
    top_k: Annotated[
        int,
        _option(
            "--top-k",
            min=0,
            callback=_count,
            metavar="N",
            panel=_SAMPLER,
            help="Keep the N likeliest tokens; 0: all.",
        ),
    ] = _SAMPLING.top_k
    top_p: Annotated[
        float,
        _option(
            "--top-p",
            min=0,
            max=1,
            callback=_finite,
            metavar="P",
            panel=_SAMPLER,
            help="Keep the likeliest tokens that make up P of the probability; 1: all.",
        ),
    ] = _SAMPLING.top_p
    min_p: Annotated[
        float,
        _option(
            "--min-p",
            min=0,
            max=1,
            callback=_finite,
            metavar="P",
            panel=_SAMPLER,
            help="Keep tokens at least P times as likely as the likeliest; 0: all.",
        ),
    ] = _SAMPLING.min_p
    repeat_penalty: Annotated[
        float,
        _option(
            "--repeat-penalty",
            callback=_positive,
            metavar="X",
            panel=_SAMPLER,
            help="Make tokens seen lately less likely; 1: off.",
        ),
    ] = _SAMPLING.repeat_penalty
    repeat_last_n: Annotated[
        int,
        _option(
            "--repeat-last-n",
            min=-1,
            callback=_count,
            metavar="N",
            panel=_SAMPLER,
            help="How many tokens back the penalties look; -1: the whole context.",
        ),
    ] = _SAMPLING.penalty_last_n
    presence_penalty: Annotated[
        float,
        _option(
            "--presence-penalty",
            callback=_finite,
            metavar="X",
            panel=_SAMPLER,
            help="Taken once from the logit of a token seen lately; 0: off.",
        ),
    ] = _SAMPLING.presence_penalty
    frequency_penalty: Annotated[
        float,
        _option(
            "--frequency-penalty",
            callback=_finite,
            metavar="X",
            panel=_SAMPLER,
            help="Taken from the logit of a token for each time it was seen lately; 0: off.",
        ),
    ] = _SAMPLING.frequency_penalty
    seed: Annotated[
        int,
        _option(
            "-s",
            "--seed",
            min=-1,
            max=2**32 - 1,
            metavar="N",
            panel=_SAMPLER,
            help="The same seed gives the same text; -1 draws one.",
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

    predict: Annotated[
        int,
        _option(
            "-n",
            "--predict",
            "--n-predict",
            min=-1,
            callback=_count,
            metavar="N",
            panel=_LENGTH,
            help="Tokens to generate at most; -1: until the model ends.",
        ),
    ] = -1
    stop: Annotated[
        list[str] | None,
        _option(
            "--stop",
            callback=_stop_strings,
            metavar="TEXT",
            panel=_LENGTH,
            help="End before TEXT; may be given again. The variable holds one per line, or "
            "several on one line with commas between.",
        ),
    ] = None
    ignore_eos: Annotated[
        bool,
        _option("--ignore-eos", panel=_LENGTH, help="Never take the model's own end of text."),
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

    raw: Annotated[
        bool, _option("--raw", panel=_CONVERSATION, help="Continue the text: no chat template.")
    ] = False
    system: Annotated[
        str | None,
        _option(
            "-sys",
            "--system",
            metavar="TEXT",
            panel=_CONVERSATION,
            help="The system message, before the conversation.",
        ),
    ] = None
    think: Annotated[
        bool | None,
        _option(
            "--think/--no-think",
            panel=_CONVERSATION,
            help="Ask for reasoning, or none, of a model whose template has the choice.",
        ),
    ] = None
