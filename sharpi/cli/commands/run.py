"""`sharpi run`: one prompt, one answer."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from sharpi.cli.chat.prompt import (
    ConstrainedAnswers,
    Prompt,
    note_useless_options,
    output_format,
    refuse_contradictions,
    show_prompt,
    whole_prompt,
)
from sharpi.cli.chat.reply import (
    ReasoningStyle,
    collect,
    note_end,
    stream,
    timings_line,
    verbose_lines,
)
from sharpi.cli.inputs import (
    DisplayPromptOption,
    JsonOption,
    ModelArgument,
    ModelOption,
    NoLogOption,
    PromptFileOption,
    PromptOption,
    PullOption,
    find_inputs,
)
from sharpi.cli.log.conversation_log import logged_run
from sharpi.cli.output.loading import open_engine
from sharpi.cli.output.terminal import print_stderr, word_wrap
from sharpi.cli.run_config import OptionSources, complete
from sharpi.cli.termination import INTERRUPTED
from sharpi.settings import GenerationRequest, RunConfig
from sharpi.settings.option import Option
from sharpi.settings.sampling import ConstraintOptions, ConversationOptions

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine, Generation


def run(
    context: typer.Context,
    request: GenerationRequest,
    answer_format: ConstraintOptions,
    conversation: ConversationOptions,
    config: RunConfig,
    model: ModelArgument = None,
    prompt: Annotated[
        list[str] | None, Option("PROMPT", "The text to answer or continue; stdin comes before it.")
    ] = None,
    model_file: ModelOption = None,
    pull: PullOption = False,
    prompt_text: PromptOption = None,
    prompt_file: PromptFileOption = None,
    display_prompt: DisplayPromptOption = True,
    single_turn: Annotated[
        bool, Option("-st --single-turn", "End after one answer, as `run` always does.")
    ] = True,
    as_json: JsonOption = False,
    no_log: NoLogOption = False,
) -> None:
    """Answer one prompt.

    A model without a chat template continues the text instead. The answer goes to stdout as it
    comes, everything else to stderr. Ctrl-C stops it and keeps the text so far.
    """
    refuse_contradictions(conversation)
    wanted = output_format(answer_format, OptionSources(context))
    path, text = find_inputs(context, model, prompt)
    config = complete(context, config, path)
    with open_engine(config) as engine:
        note_useless_options(engine, conversation)
        whole = whole_prompt(engine, text, conversation)
        constrained = ConstrainedAnswers(wanted, engine.tokenizer) if wanted else None
        if constrained or not display_prompt:
            whole = replace(whole, echo="")  # structured output is printed without the prompt
        if conversation.verbose_prompt:
            show_prompt(engine.tokenizer, whole.text, whole.ids)
        constraint = constrained.constraint(whole.text) if constrained else None
        generation = engine.session().generate(whole.ids, request, constraint=constraint)
        with logged_run(generation, text, conversation.system, path, is_wanted=not no_log):
            if as_json:
                is_complete = collect(generation)
                record = _record(config, whole, generation, is_complete)
                print(json.dumps(record, ensure_ascii=False))
            else:
                is_complete = _print_text(
                    engine,
                    whole,
                    generation,
                    is_verbose=conversation.verbose,
                    is_constrained=constrained is not None,
                )
        note_end(generation, constrained)
    if not is_complete:
        raise typer.Exit(INTERRUPTED)


def _print_text(
    engine: "Engine",
    prompt: Prompt,
    generation: "Generation",
    *,
    is_verbose: bool,
    is_constrained: bool,
) -> bool:
    """Prints answer (wrapped unless constrained) and speeds; returns False if Ctrl-C ended it."""
    style, wrap = ReasoningStyle(prompt.text), None if is_constrained else word_wrap()
    is_complete = stream(generation, style, prompt.echo, wrap)
    if generation.ids or is_complete:
        timings = generation.timings
        for line in verbose_lines(timings) if is_verbose else [timings_line(timings)]:
            print_stderr(line)
        if (compared := engine.against_plan(timings)) is not None:
            print_stderr(compared)
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
    } | ({} if timings.drafts is None else {"speculation": timings.drafts.to_dict()})
