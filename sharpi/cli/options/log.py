"""The option that keeps a conversation out of the log."""

from typing import Annotated

from sharpi.cli.options.option import option

NoLogOption = Annotated[
    bool, option("--no-log", "Do not keep this conversation; see `sharpi log`.")
]
