"""`sharpi version`: the version and the CPU kernels in use, as `--version` prints them."""

from sharpi import __version__
from sharpi.errors import SharpiError


def version() -> None:
    """Print the version and the CPU kernels in use."""
    print(f"sharpi {__version__}")
    print(f"CPU kernels: {_kernels_in_use()}")


def _kernels_in_use() -> str:
    """Returns the instruction set of the CPU kernels, and why no better one is used."""
    from sharpi.ops.cpu.library import better_instruction_sets, instruction_set

    try:
        used, better = instruction_set(), better_instruction_sets()
    except SharpiError as error:
        return f"none; {error}"
    if not better:
        return used
    name, features = list(better.items())[-1]
    return f"{used} ({name} needs what this processor lacks: {', '.join(features)})"
