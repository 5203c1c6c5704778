"""The settings of drafts: tokens that may come next, of which one step checks several.

They change the speed, but not the text.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Struct

from sharpi.settings.option import Option

DraftKind = Literal["ngram", "suffix", "mtp", "draft"]

KINDS: tuple[DraftKind, ...] = ("ngram", "suffix", "mtp", "draft")
# llama.cpp's names for the same kinds.
_ALIASES: dict[str, DraftKind] = {
    "draft-simple": "draft",
    "draft-mtp": "mtp",
    "ngram-simple": "ngram",
    "ngram-cache": "ngram",
    "ngram-map-k": "ngram",
    "ngram-mod": "suffix",
}
_MOST = 15


def _kinds(text: str) -> dict[str, Any]:
    """Returns the fields that a list of kinds sets; raises ValueError for unknown ones."""
    names = [_ALIASES.get(name.strip(), name.strip()) for name in text.split(",") if name.strip()]
    for name in names:
        if name not in (*KINDS, "auto", "none"):
            raise ValueError(f"{name!r} is none of {', '.join(('auto', 'none', *KINDS))}")
    if not names or ("none" in names and len(names) > 1):
        raise ValueError("give auto, none, or kinds with commas between them")
    return {"kinds": tuple(kind for kind in KINDS if kind in names), "is_auto": "auto" in names}


class SpeculationConfig(Struct, frozen=True):
    """The kinds of drafts to make, and their lengths; without kinds, no drafts are made."""

    GROUP: ClassVar = "Speculation"

    kinds: Annotated[  # in the order in which they are asked for drafts
        tuple[DraftKind, ...],
        Option(
            "--spec-type auto|none|LIST",
            "Check drafts of the next tokens in one step. auto: as many as pay by measured "
            "times; LIST: always these kinds, of ngram (from the text so far), suffix (from all "
            "text of this process), mtp (by the file's own head) and draft (by "
            "--spec-draft-model); auto,LIST: these kinds, as many as pay.",
            parse=_kinds,
            default="auto; none on a GPU, without mtp on several machines",
        ),
    ] = ()
    is_auto: bool = False  # chooses draft lengths by what they gain; otherwise each is `max_drafts`
    max_drafts: Annotated[  # None lets sharpi decide
        int | None,
        Option(
            "--spec-draft-n-max N",
            "Maximum number of drafts that a step checks.",
            min=0,
            max=_MOST,
            default="15 with auto, else 3",
        ),
    ] = None
    min_drafts: Annotated[
        int,
        Option("--spec-draft-n-min N", "Do not check drafts of fewer tokens.", min=0, max=_MOST),
    ] = 0
    min_probability: Annotated[
        float,
        Option("--spec-draft-p-min P", "End drafts at tokens less likely than P.", min=0, max=1),
    ] = 0.0
    draft_model: Annotated[
        Path | None,
        Option(
            "-md --spec-draft-model FILE",
            "A smaller GGUF file with the same vocabulary, which drafts; or a file that holds the "
            "model's head for multi-token prediction (MTP) alone.",
        ),
    ] = None
    # Not requested by the user: drafts run only where they are known to pay.
    is_default: bool = False

    @property
    def is_on(self) -> bool:
        """True if these settings allow drafts."""
        return bool(self.kinds) and self.max_drafts != 0


# The kinds of drafts that commands use by default, and that auto includes.
USUAL_DRAFTS = SpeculationConfig(kinds=("ngram", "suffix", "mtp"), is_auto=True, is_default=True)
