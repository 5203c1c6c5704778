"""The options and arguments that several commands have, besides the structs of settings."""

from typing import Annotated

from sharpi.settings.option import Option

JsonOption = Annotated[bool, Option("--json", "Print one JSON object instead of text for people.")]
NoLogOption = Annotated[
    bool, Option("--no-log", "Do not keep this conversation; see `sharpi log`.")
]
DisplayPromptOption = Annotated[
    bool,
    Option(
        "--display-prompt/--no-display-prompt",
        "Print the prompt before its continuation, where no chat template is used.",
    ),
]
ModelArgument = Annotated[
    str | None,
    Option(
        "MODEL",
        "A GGUF file, or a name as in `sharpi list` or `sharpi models`.",
        default="the demo model",
    ),
]
ModelOption = Annotated[
    str | None, Option("-m --model FILE", "The GGUF file or name, instead of MODEL.")
]
PromptOption = Annotated[str | None, Option("-p --prompt TEXT", "The prompt; '-' reads stdin.")]
PullOption = Annotated[
    bool, Option("--pull", "Fetch the model from the hub if it is missing, without asking.")
]
PromptFileOption = Annotated[
    str | None,
    Option(
        "-f --file FILE", "Read the prompt from FILE ('-': stdin), without the newline at its end."
    ),
]
