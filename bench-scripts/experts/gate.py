"""The check of never_slower.py: the default must be at most 2 % slower than any alternative."""

from collections.abc import Mapping

from msgspec import Struct

DEFAULT = "default"
TOLERANCE = 1.02


class Comparison(Struct, frozen=True):
    """The default's time compared with that of the fastest alternative."""

    where: str  # tier, routes and residency
    best: str  # the name of the fastest alternative
    ratio: float  # the default's seconds per token, divided by those of `best`

    @property
    def passes(self) -> bool:
        return self.ratio <= TOLERANCE


def judge(where: str, seconds: Mapping[str, float]) -> Comparison:
    """Compares the default with the fastest alternative.

    `seconds`: seconds per token by name, with the name DEFAULT for the default.
    """
    others = {name: value for name, value in seconds.items() if name != DEFAULT}
    best = min(others, key=lambda name: others[name])
    return Comparison(where, best, seconds[DEFAULT] / others[best])


def table(measured: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a line per case: milliseconds per token of each alternative, and the result.

    `measured`: seconds per token by case and name.
    """
    lines = []
    for where, seconds in measured.items():
        result = judge(where, seconds)
        cells = "  ".join(f"{name} {1e3 * value:.2f}" for name, value in seconds.items())
        state = "ok" if result.passes else "SLOWER"
        lines.append(f"{where:34} {cells}  ms; {result.ratio:.3f} of {result.best}: {state}")
    return "\n".join(lines)
