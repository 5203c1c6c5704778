"""Options that name the model file and the prompt."""

from typing import Annotated

import typer

from sharpi.cli.options.option import option

ModelArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A GGUF file, or a name as in `sharpi list`.",
        show_default="the demo model",
    ),
]
ModelOption = Annotated[
    str | None, option("-m --model", "The GGUF file or name, instead of MODEL.", "FILE")
]
PromptOption = Annotated[str | None, option("-p --prompt", "The prompt; '-' reads stdin.", "TEXT")]
PromptFileOption = Annotated[
    str | None,
    option(
        "-f --file",
        "Read the prompt from FILE ('-': stdin), without the newline at its end.",
        "FILE",
    ),
]
