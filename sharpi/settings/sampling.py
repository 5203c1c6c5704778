"""The settings of answers: sampler, length, conversation and form; names are llama.cpp's."""

from typing import Annotated, ClassVar

from msgspec import Struct, field

from sharpi.settings.option import Option, positive


def _seed(text: str) -> int | None:
    """Returns a seed, or None for -1."""
    value = int(text) if text.strip().lstrip("+-").isdecimal() and len(text) < 20 else None
    if value is None:
        raise ValueError(f"{text!r} is not a whole number")
    if not -1 <= value < 2**32:
        raise ValueError(f"{text!r} is not a seed from -1 to {2**32 - 1}")
    return None if value < 0 else value


def _stop_strings(text: str) -> list[str]:
    """Splits the value of SHARPI_STOP at newlines, or at commas if it has no newline."""
    return [item for item in text.split("\n" if "\n" in text else ",") if item]


class SamplingParams(Struct, frozen=True):
    """The parameters of the sampler."""

    GROUP: ClassVar = "Sampling"

    temperature: Annotated[
        float, Option("--temp --temperature T", "Randomness; 0 takes the most likely token.", min=0)
    ] = 0.8
    top_k: Annotated[int, Option("--top-k N", "Keep the N most likely tokens; 0: all.", min=0)] = 40
    top_p: Annotated[
        float,
        Option("--top-p P", "Keep the most likely tokens up to P in sum; 1: all.", min=0, max=1),
    ] = 0.95
    min_p: Annotated[
        float,
        Option(
            "--min-p P",
            "Keep tokens at least P times as likely as the most likely one; 0: all.",
            min=0,
            max=1,
        ),
    ] = 0.05
    repeat_penalty: Annotated[
        float,
        Option("--repeat-penalty --rep-penalty X", "Lower recent tokens; 1: off.", parse=positive),
    ] = 1.0
    presence_penalty: Annotated[
        float,
        Option("--presence-penalty X", "Subtracted once from each recent token's logit; 0: off."),
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        Option("--frequency-penalty X", "Subtracted from a token's logit per recent use; 0: off."),
    ] = 0.0
    penalty_last_n: Annotated[
        int, Option("--repeat-last-n N", "Tokens that penalties consider; -1: the context.", min=-1)
    ] = 64
    seed: Annotated[
        int | None,
        Option(
            "-s --seed N",
            "Seed of the sampler; the same seed gives the same text. -1: random.",
            parse=_seed,
            default="-1",
        ),
    ] = None


class GenerationRequest(Struct, frozen=True):
    """Limits and parameters of one generation."""

    GROUP: ClassVar = "Length"

    max_tokens: Annotated[
        int, Option("-n --predict --n-predict N", "Most tokens to generate; -1: no limit.", min=-1)
    ] = -1
    stop: Annotated[
        tuple[str, ...],
        Option(
            "--stop TEXT",
            "Stop before TEXT; may be repeated. The variable holds one per line, or several on "
            "one line separated by commas.",
            split=_stop_strings,
            is_repeated=True,
        ),
    ] = ()
    # The markers around reasoning, in which `stop` does not act; the first is "" where the prompt
    # ends within reasoning.
    reasoning: tuple[str, str] | None = None
    ignore_end: Annotated[
        bool, Option("--ignore-eos", "Continue after the model's end-of-text token.")
    ] = False
    sampling: SamplingParams = field(default_factory=SamplingParams)
    # Pairs of a token id and the value that is added to its logit before penalties and filters.
    logit_bias: tuple[tuple[int, float], ...] = ()
    # The number of best tokens reported with each token; None reports no logprobs at all.
    num_logprobs: int | None = None
    shows_special: bool = False  # control tokens are part of the text, except the end token


class ConversationOptions(Struct, frozen=True):
    """The options for the chat template, and for printing prompts and statistics."""

    GROUP: ClassVar = "Conversation"

    raw: Annotated[bool, Option("--raw", "Continue the text without the chat template.")] = False
    system: Annotated[
        str | None, Option("-sys --system --system-prompt TEXT", "The system message.")
    ] = None
    verbose_prompt: Annotated[
        bool, Option("--verbose-prompt", "Print each prompt and its tokens to stderr.")
    ] = False
    verbose: Annotated[
        bool,
        Option("-v --verbose", "Print what each kind of draft gained. (The version: `sharpi -v`.)"),
    ] = False
    think: Annotated[
        bool | None,
        Option("--think/--no-think", "Turn reasoning on or off.", default="the template's"),
    ] = None


class ConstraintOptions(Struct, frozen=True):
    """The schema or grammar that every answer must match."""

    GROUP: ClassVar = "Structured output"

    json_schema: Annotated[
        str | None, Option("--json-schema FILE", "Answer in JSON that follows the schema in FILE.")
    ] = None
    json_object: Annotated[bool, Option("--json-object", "Answer with a JSON object.")] = False
    grammar: Annotated[
        str | None,
        Option("--grammar FILE", "Follow the grammar in FILE: GBNF, or llguidance's Lark."),
    ] = None
