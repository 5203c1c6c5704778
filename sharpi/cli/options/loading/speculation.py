"""The options for drafts of the next tokens, which one step checks together."""

from pathlib import Path
from typing import Annotated, ClassVar

import click
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import DraftKind, RunConfig, SpeculationConfig
from sharpi.errors import UsageError

_MOST = 15
_USUAL_FIXED = 3  # llama.cpp's default
_KINDS: tuple[DraftKind, ...] = ("ngram", "suffix", "mtp", "draft")
# The kinds that auto includes, if the model file supports them.
_OFFERED: tuple[DraftKind, ...] = ("ngram", "suffix", "mtp")
# llama.cpp's names for the same kinds.
_ALIASES: dict[str, DraftKind] = {
    "draft-simple": "draft",
    "draft-mtp": "mtp",
    "ngram-simple": "ngram",
    "ngram-cache": "ngram",
    "ngram-map-k": "ngram",
    "ngram-mod": "suffix",
}


def _types_of(text: str) -> str:
    """Parses a list of drafter kinds; replaces llama.cpp's names by those of sharpi."""
    names = [_ALIASES.get(name.strip(), name.strip()) for name in text.split(",") if name.strip()]
    for name in names:
        if name not in (*_KINDS, "auto", "none"):
            known = ", ".join(("auto", "none", *_KINDS))
            raise click.BadParameter(f"{name!r} is none of {known}")
    if not names or ("none" in names and len(names) > 1):
        raise click.BadParameter("give auto, none, or kinds with commas between them")
    return ",".join(dict.fromkeys(names))


DraftModelOption = Annotated[
    Path | None,
    option(
        "-md --spec-draft-model",
        "A smaller GGUF file with the same vocabulary, which drafts; or a file that holds the "
        "model's head for multi-token prediction (MTP) alone.",
        "FILE",
    ),
]


class SpeculationOptions(Struct, frozen=True):
    """The kinds and number of drafts, which change the speed but not the answer."""

    heading: ClassVar = "Speculation"

    spec_type: Annotated[
        str | None,
        option(
            "--spec-type",
            "Check drafts of the next tokens in one step. auto: as many as pay by measured "
            "times; LIST: always these kinds, of ngram (from the text so far), suffix (from all "
            "text of this process), mtp (by the file's own head) and draft (by "
            "--spec-draft-model); auto,LIST: these kinds, as many as pay.",
            "auto|none|LIST",
            parser=_types_of,
            autocompletion=lambda: ["auto", "none", *_KINDS],
            show_default="auto; none on a GPU, without mtp on several machines",
        ),
    ] = None
    spec_draft_n_max: Annotated[
        int | None,
        option(
            "--spec-draft-n-max",
            "Maximum number of drafts that a step checks.",
            "N",
            min=0,
            max=_MOST,
            show_default="15 with auto, else 3",
        ),
    ] = None
    spec_draft_n_min: Annotated[
        int,
        option(
            "--spec-draft-n-min",
            "Do not check drafts of fewer tokens.",
            "N",
            min=0,
            max=_MOST,
        ),
    ] = 0
    spec_draft_p_min: Annotated[
        float,
        option(
            "--spec-draft-p-min",
            "End a draft before a token whose probability is below P.",
            "P",
            min=0,
            max=1,
        ),
    ] = 0.0
    spec_draft_model: DraftModelOption = None

    def extend(self, config: RunConfig, sources: OptionSources) -> RunConfig:
        """Returns `config` with these options; raises UsageError for contradictory ones."""
        names = self._names()
        kinds = tuple(kind for kind in _KINDS if kind in names)
        self._refuse_contradictions(kinds, sources)
        most = self.spec_draft_n_max
        return replace(
            config,
            speculation=SpeculationConfig(
                kinds=kinds,
                is_auto="auto" in names,
                max_drafts=_USUAL_FIXED if most is None and kinds and "auto" not in names else most,
                min_drafts=self.spec_draft_n_min,
                min_probability=self.spec_draft_p_min,
                draft_model=self.spec_draft_model,
                is_default=self.spec_type is None and self.spec_draft_model is None,
            ),
        )

    def _names(self) -> list[str]:
        """Returns the names in --spec-type; after `auto` alone, also the kinds that it includes."""
        has_model = self.spec_draft_model is not None
        names = (self.spec_type or "auto").split(",")
        if names == ["auto"]:
            names += [*_OFFERED, "draft"] if has_model else _OFFERED
        return names

    def _refuse_contradictions(self, kinds: tuple[DraftKind, ...], sources: OptionSources) -> None:
        if "draft" in kinds and self.spec_draft_model is None:
            raise UsageError("--spec-type draft needs the file of --spec-draft-model")
        if self.spec_draft_n_max is not None and self.spec_draft_n_min > self.spec_draft_n_max:
            sources.raise_conflict(
                "spec_draft_n_min", "spec_draft_n_max", "the first is the larger one"
            )
