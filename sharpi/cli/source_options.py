"""Options that name the model file and the prompt."""

from typing import Annotated

from sharpi.cli.option import option

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
