"""The options for the slots of experts and for prefetch."""

from typing import Annotated, ClassVar, Literal

import click
from msgspec import Struct

from sharpi.cli.options.option import count, finite, option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.config import ExpertConfig, Resident
from sharpi.errors import UsageError

Policy = Literal[
    "slru",
    "lru",
    "lfru",
    "static",
    "learned-keep",
    "learned-prefetch",
]
Predictor = Literal["last-token", "last-layer", "both", "frequency", "router", "learned"]

_EXPERTS = ExpertConfig()
_MOST_EXPERTS = 10**6  # ids have at most six digits; the model may have fewer experts


def _ids(text: str | None) -> str | None:
    """Returns `text` if it is a valid list of expert ids; raises BadParameter if not.

    Ids above the number of experts are found later, when the model is known.
    """
    if text is None:
        return None
    from sharpi.experts.static_set import parse_ids

    try:
        parse_ids(text, _MOST_EXPERTS)
    except UsageError as error:
        raise click.BadParameter(str(error)) from None
    return text


class ExpertOptions(Struct, frozen=True):
    """The policy of the slots, prefetch, and a fixed set of experts for the slots.

    The options have no effect if all experts are resident.
    """

    heading: ClassVar = "Experts"

    moe_policy: Annotated[
        Policy | None,
        option(
            "--moe-policy",
            "Policy that decides which expert is evicted.",
            show_default="the measured best",
        ),
    ] = None
    moe_load_budget: Annotated[
        float | None,
        option(
            "--moe-load-budget",
            "Prefetches per token that learned-prefetch aims for.",
            "N",
            min=0,
            callback=finite,
            show_default="a tenth of a token's lookups",
        ),
    ] = _EXPERTS.load_budget
    moe_warmpin: Annotated[
        int | None,
        option(
            "--moe-warmpin",
            "Pin the N most used experts of each layer, at most half of its slots; 0: none.",
            "N",
            min=0,
            callback=count,
            show_default="those of a token with lru and half the experts in slots, else 0",
        ),
    ] = _EXPERTS.warm_pin
    moe_warmpin_after: Annotated[
        int | None,
        option(
            "--moe-warmpin-after",
            "Accesses to experts before they are pinned.",
            "N",
            min=0,
            callback=count,
            show_default="512",
        ),
    ] = _EXPERTS.warm_pin_after
    moe_predict_prefetch: Annotated[
        bool,
        option(
            "--moe-predict-prefetch/--no-moe-predict-prefetch",
            "Prefetch the experts that will probably be used.",
        ),
    ] = _EXPERTS.prefetch
    moe_predictor: Annotated[
        Predictor | None,
        option(
            "--moe-predictor",
            "Predictor of the experts to prefetch.",
            show_default="the measured best",
        ),
    ] = None
    moe_resident: Annotated[
        Resident | None,
        option(
            "--moe-resident",
            "A fixed set of experts in the slots (policy static): the first ones, the most used, "
            "or those of --moe-resident-ids.",
        ),
    ] = _EXPERTS.resident
    moe_resident_ids: Annotated[
        str | None,
        option(
            "--moe-resident-ids",
            "The fixed set of every layer, as in 1,2,5 or 0-7.",
            "IDS",
            callback=_ids,
        ),
    ] = _EXPERTS.resident_ids
    moe_warmup_tokens: Annotated[
        int,
        option(
            "--moe-warmup-tokens",
            "Tokens in which --moe-resident frequency counts uses; it begins with the first "
            "experts, and chooses anew after a 64th of them and at each doubling.",
            "N",
            min=1,
            callback=count,
        ),
    ] = _EXPERTS.warmup_tokens

    def config(self, sources: OptionSources) -> ExpertConfig:
        """Returns the configuration of the expert cache.

        Raises UsageError for contradictory options.
        """
        self._refuse_contradictions(sources)
        resident = self.moe_resident or ("ids" if self.moe_resident_ids is not None else None)
        return ExpertConfig(
            policy=self.moe_policy or ("static" if resident else None),
            load_budget=self.moe_load_budget,
            warm_pin=self.moe_warmpin,
            warm_pin_after=self.moe_warmpin_after,
            prefetch=self.moe_predict_prefetch,
            predictor=self.moe_predictor,
            resident=resident,
            resident_ids=self.moe_resident_ids,
            warmup_tokens=self.moe_warmup_tokens,
        )

    def _refuse_contradictions(self, sources: OptionSources) -> None:
        self._refuse_sets(sources)
        if self.moe_predictor is not None and not self.moe_predict_prefetch:
            sources.raise_conflict(
                "moe_predict_prefetch", "moe_predictor", "predictions are for prefetch"
            )
        if self.moe_load_budget is not None:
            self._refuse_unlearned(sources, "moe_load_budget")
        if self.moe_predictor == "learned":
            self._refuse_unlearned(sources, "moe_predictor")

    def _refuse_unlearned(self, sources: OptionSources, parameter: str) -> None:
        """Raises UsageError for an option of the learned policies if another policy is chosen."""
        other = self._set_name
        if self.moe_policy is not None:
            other = None if self.moe_policy.startswith("learned") else "moe_policy"
        if other is not None:
            sources.raise_conflict(parameter, other, "it needs a learned policy")

    def _refuse_sets(self, sources: OptionSources) -> None:
        """Raises UsageError if options of a fixed set contradict each other or the policy."""
        if self._set_name is not None and self.moe_policy not in (None, "static"):
            sources.raise_conflict(self._set_name, "moe_policy", "only static keeps a fixed set")
        if self.moe_resident_ids is not None and self.moe_resident not in (None, "ids"):
            sources.raise_conflict("moe_resident", "moe_resident_ids", "each fixes the set")
        if self.moe_resident == "ids" and self.moe_resident_ids is None:
            raise UsageError(
                f"{sources.name('moe_resident')} ids needs --moe-resident-ids, as in 1,2,5 or 0-7"
            )

    @property
    def _set_name(self) -> str | None:
        """The parameter that requests a fixed set of experts; None without one."""
        if self.moe_resident is not None:
            return "moe_resident"
        return "moe_resident_ids" if self.moe_resident_ids is not None else None
