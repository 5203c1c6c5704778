"""The options for RoPE scaling, for contexts longer than a model was trained on."""

from typing import Annotated, ClassVar

from msgspec import Struct

from sharpi.cli.options.option import count, finite, option, positive
from sharpi.config import RopeKind, RopeRequest


def _factor(value: float | None) -> float | None:
    return value if value is None else positive(value)


class RopeOptions(Struct, frozen=True):
    """The kind and parameters of RoPE scaling; None where the file decides."""

    heading: ClassVar = "RoPE scaling"

    rope_scaling: Annotated[
        RopeKind | None,
        option(
            "--rope-scaling",
            "How positions beyond the trained context are scaled.",
            show_default="the file's, else linear",
        ),
    ] = None
    rope_scale: Annotated[
        float | None,
        option(
            "--rope-scale",
            "Factor by which the context grows.",
            "N",
            callback=_factor,
            show_default="the file's",
        ),
    ] = None
    yarn_orig_ctx: Annotated[
        int | None,
        option(
            "--yarn-orig-ctx",
            "YaRN: tokens of context that the model was trained on.",
            "N",
            min=1,
            callback=count,
            show_default="the file's",
        ),
    ] = None
    yarn_ext_factor: Annotated[
        float | None,
        option(
            "--yarn-ext-factor",
            "YaRN: how much fast dimensions keep their frequency, 0 for not at all.",
            "N",
            min=0,
            max=1,
            callback=finite,
            show_default="1",
        ),
    ] = None
    yarn_attn_factor: Annotated[
        float | None,
        option(
            "--yarn-attn-factor",
            "YaRN: multiplies its attention factor.",
            "N",
            callback=_factor,
            show_default="1",
        ),
    ] = None
    yarn_beta_fast: Annotated[
        float | None,
        option(
            "--yarn-beta-fast",
            "YaRN: keep frequencies of at least N rotations in the trained context.",
            "N",
            callback=_factor,
            show_default="32",
        ),
    ] = None
    yarn_beta_slow: Annotated[
        float | None,
        option(
            "--yarn-beta-slow",
            "YaRN: divide frequencies of at most N rotations in the trained context.",
            "N",
            callback=_factor,
            show_default="1",
        ),
    ] = None

    def request(self) -> RopeRequest:
        """Returns the requested RoPE scaling."""
        return RopeRequest(
            kind=self.rope_scaling,
            factor=self.rope_scale,
            original_context=self.yarn_orig_ctx,
            extrapolation=self.yarn_ext_factor,
            attention_factor=self.yarn_attn_factor,
            beta_fast=self.yarn_beta_fast,
            beta_slow=self.yarn_beta_slow,
        )
