"""`sharpi tokenize`: the token ids of a text."""

import json
from typing import Annotated

from sharpi.cli.options.inputs.model_path import model_path
from sharpi.cli.options.inputs.source_text import STDIN, text_of_argument, text_of_stdin
from sharpi.cli.output.terminal import print_note, stdin_is_terminal
from sharpi.cli.shared_options import JsonOption
from sharpi.errors import UsageError
from sharpi.settings.option import argument, local_option


def tokenize(
    model: Annotated[str, argument("MODEL", "A GGUF file or a name.")],
    text: Annotated[
        str | None,
        argument("TEXT", "The text; '-' or nothing reads stdin byte for byte."),
    ] = None,
    no_bos: Annotated[
        bool, local_option("--no-bos", "Add no BOS token, even if the model expects one.")
    ] = False,
    no_special: Annotated[
        bool, local_option("--no-special", "Treat special tokens in the text as plain text.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the ids of a text.

    The ids are on one line, separated by spaces.
    """
    from sharpi.gguf.reader import open_gguf
    from sharpi.tokenizer.tokenizer import load_tokenizer

    content = _content(text)
    with open_gguf(model_path(model)) as file:
        tokenizer = load_tokenizer(file.metadata)
    for warning in tokenizer.notes:
        print_note(warning)
    add_bos = tokenizer.add_bos and not no_bos
    ids = tokenizer.encode(content, add_bos=add_bos, parse_special=not no_special)
    print(json.dumps({"ids": ids}) if as_json else " ".join(map(str, ids)))


def _content(text: str | None) -> str:
    if text is not None and text != STDIN:
        return text_of_argument(text, "TEXT")
    if text is None and stdin_is_terminal():
        raise UsageError("no text; give one as TEXT or on stdin")
    return text_of_stdin()
