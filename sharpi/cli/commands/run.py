"""`sharpi run`: one prompt, one answer."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from sharpi.cli import exit_codes
from sharpi.cli.chat.prompt import Prompt, refuse_contradictions, whole_prompt
from sharpi.cli.chat.reasoning_style import ReasoningStyle
from sharpi.cli.chat.reply import collect, note_cut_form, note_early_end, stream, timings_line
from sharpi.cli.options.answer_form import FormedAnswers
from sharpi.cli.options.constraint import ConstraintOptions
from sharpi.cli.options.context import ContextOptions
from sharpi.cli.options.conversation import ConversationOptions
from sharpi.cli.options.engine import EngineOptions
from sharpi.cli.options.inputs import find_inputs
from sharpi.cli.options.json_output import JsonOption
from sharpi.cli.options.length import LengthOptions
from sharpi.cli.options.sampling import SamplingOptions
from sharpi.cli.options.source import ModelArgument, ModelOption, PromptFileOption, PromptOption
from sharpi.cli.output.loading import open_engine
from sharpi.cli.output.terminal import say
from sharpi.config import RunConfig

if TYPE_CHECKING:
    from sharpi.engine.generation import Generation


def run(
    context: typer.Context,
    length: LengthOptions,
    sampling: SamplingOptions,
    form_options: ConstraintOptions,
    conversation: ConversationOptions,
    limits: ContextOptions,
    engine_options: EngineOptions,
    model: ModelArgument = None,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The text to answer or continue; '-' reads stdin."),
    ] = None,
    model_file: ModelOption = None,
    prompt_text: PromptOption = None,
    prompt_file: PromptFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer one prompt.

    A model without a chat template continues the text instead. The answer goes to stdout as it
    comes, everything else to stderr. Ctrl-C stops it and keeps the text so far.
    """
    refuse_contradictions(conversation)
    form = form_options.form(context)
    inputs = find_inputs(context, model, prompt)
    config = engine_options.run_config(
        context,
        inputs.model,
        context_size=limits.ctx_size,
        context_shift=limits.context_shift,
    )
    with open_engine(config) as engine:
        whole = whole_prompt(engine, inputs.prompt, conversation)
        formed = FormedAnswers(form, engine.tokenizer) if form else None
        if formed:
            whole = replace(whole, echo="")  # structured output is printed without the prompt
        constraint = formed.constraint(whole.text) if formed else None
        request = length.request(sampling)
        generation = engine.session().generate(whole.ids, request, constraint=constraint)
        answer = _print_json if as_json else _print_text
        is_complete = answer(config, whole, generation)
        note_cut_form(generation, formed)
    if not is_complete:
        raise typer.Exit(exit_codes.INTERRUPTED)


def _print_text(config: RunConfig, prompt: Prompt, generation: "Generation") -> bool:
    is_complete = stream(generation, ReasoningStyle(prompt.text), echo=prompt.echo)
    note_early_end(generation)
    say(timings_line(generation.timings))
    return is_complete


def _print_json(config: RunConfig, prompt: Prompt, generation: "Generation") -> bool:
    is_complete = collect(generation)
    print(json.dumps(_record(config, prompt, generation, is_complete), ensure_ascii=False))
    return is_complete


def _record(
    config: RunConfig, prompt: Prompt, generation: "Generation", is_complete: bool
) -> dict[str, Any]:
    timings = generation.timings
    return {
        "model": str(config.model),
        "prompt": prompt.text,
        "text": generation.text,
        "finish_reason": generation.finish_reason if is_complete else "interrupted",
        "prompt_tokens": len(prompt.ids),
        "generated_tokens": len(generation.ids),
        "ids": generation.ids,
        "timings": {
            "prefill_seconds": timings.prefill_seconds,
            "decode_seconds": timings.decode_seconds,
            "first_token_seconds": timings.first_token_seconds,
            "prompt_tokens_per_second": timings.prompt_tokens_per_second,
            "decode_tokens_per_second": timings.decode_tokens_per_second,
        },
    }
