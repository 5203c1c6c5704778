"""The option --no-log, with which a conversation is not logged."""

from typing import Annotated

from sharpi.cli.options.option import option

NoLogOption = Annotated[
    bool, option("--no-log", "Do not keep this conversation; see `sharpi log`.")
]
