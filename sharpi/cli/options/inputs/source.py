"""Declares the options and arguments that name the model file and the prompt."""

from typing import Annotated

from sharpi.cli.options.option import argument, option

DisplayPromptOption = Annotated[
    bool,
    option(
        "--display-prompt/--no-display-prompt",
        "Print the prompt before its continuation, where no chat template is used.",
    ),
]
ModelArgument = Annotated[
    str | None,
    argument(
        "MODEL",
        "A GGUF file, or a name as in `sharpi list` or `sharpi models`.",
        show_default="the demo model",
    ),
]
ModelOption = Annotated[
    str | None, option("-m --model", "The GGUF file or name, instead of MODEL.", "FILE")
]
PromptOption = Annotated[str | None, option("-p --prompt", "The prompt; '-' reads stdin.", "TEXT")]
PullOption = Annotated[
    bool, option("--pull", "Fetch the model from the hub if it is missing, without asking.")
]
PromptFileOption = Annotated[
    str | None,
    option(
        "-f --file",
        "Read the prompt from FILE ('-': stdin), without the newline at its end.",
        "FILE",
        is_everyday=True,
    ),
]
