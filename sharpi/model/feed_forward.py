"""A layer's feed-forward: dense, or routed experts with an optional shared one."""

from dataclasses import dataclass, replace
from typing import Protocol

from sharpi.model.branch import Branch
from sharpi.model.latent import Latent, load_latent
from sharpi.model.norm import load_norm, optional_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, ExpertBanks, Matrix, Ops, Router, X


class FeedForward(Protocol):
    """One layer's weights and step."""

    @property
    def experts(self) -> ExpertBanks | None:
        """The routed experts, None in a dense layer."""

    def feed(self, ops: Ops[X], x: X, following: "FeedForward | None") -> X:
        """The residual stream (hidden,) afterwards; `following` is the next layer's."""

    def foresee(self, ops: Ops[X], x: X) -> None:
        """A hint which experts the layer will choose, from the stream as it is by now."""


@dataclass(frozen=True, slots=True)
class FeedForwardSettings:
    """What all layers' feed-forwards share; `router` has neither bias nor layer yet.

    `gated`: whether there is a gate beside what goes up. `norm`: the name of the norm before.
    """

    hidden_size: int
    norm_epsilon: float
    residual_scale: float
    activation: Activation
    router: Router
    weighs_input: bool = False
    gated: bool = True
    norm: str = "ffn_norm"

    def load(self, tensors: TensorSource, layer: int) -> FeedForward:
        """The layer's weights: routed where the file has a router for it."""
        branch = self._branch(tensors)
        if not tensors.has("ffn_gate_inp.weight"):
            banks = tensors.banks("ffn_%s", self.hidden_size, 1, gated=self.gated)
            return DenseFeedForward(branch, banks, self.activation)
        if tensors.has("pre_ffw_norm_2.weight"):
            from sharpi.model.parallel_feed_forward import load_parallel

            return load_parallel(
                tensors, branch, self.router, self.activation, self.hidden_size, layer
            )
        hidden, router = self.hidden_size, self.router
        bias = tensors.optional_vector("exp_probs_b.bias", router.num_experts)
        latent = load_latent(tensors, hidden)
        width = latent.down.rows if latent else hidden
        banks = tensors.banks("ffn_%s_exps", width, router.num_experts, gated=self.gated)
        return RoutedFeedForward(
            branch=branch,
            experts=replace(banks, layer=layer, weighs_input=self.weighs_input),
            activation=self.activation,
            router=replace(router, bias=bias, layer=layer),
            router_matrix=tensors.matrix("ffn_gate_inp", (router.num_experts, hidden)),
            latent=latent,
            shared=tensors.optional_banks("ffn_%s_shexp", hidden, gated=self.gated),
            shared_gate=tensors.optional_matrix("ffn_gate_inp_shexp", (1, hidden)),
        )

    def _branch(self, tensors: TensorSource) -> Branch:
        size, epsilon = self.hidden_size, self.norm_epsilon
        return Branch(
            norm=load_norm(tensors, self.norm, epsilon, size),
            post_norm=optional_norm(tensors, "post_ffw_norm", epsilon, size),
            scale=self.residual_scale,
        )


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    """down(act(gate h) * up h)."""

    branch: Branch
    banks: ExpertBanks
    activation: Activation

    @property
    def experts(self) -> None:
        """There are none."""

    def feed(self, ops: Ops[X], x: X, following: FeedForward | None) -> X:
        """The residual stream (hidden,) afterwards."""

        def compute(h: X, residual: X | None, scale: float) -> X:
            return ops.experts(h, self.banks, self.activation, None, residual, scale)

        return self.branch.follow(ops, x, compute)

    def foresee(self, ops: Ops[X], x: X) -> None:
        """There is nothing to choose."""


@dataclass(frozen=True, slots=True)
class RoutedFeedForward:
    """The chosen experts' weighted sum, and a shared one that may have a gate of its own."""

    branch: Branch
    experts: ExpertBanks
    activation: Activation
    router: Router
    router_matrix: Matrix
    latent: Latent | None
    shared: ExpertBanks | None
    shared_gate: Matrix | None

    def feed(self, ops: Ops[X], x: X, following: FeedForward | None) -> X:
        """The residual stream (hidden,) afterwards."""

        def compute(h: X, residual: X | None, scale: float) -> X:
            (logits,) = ops.linear(h, [self.router_matrix])
            route = ops.route(logits, self.router)
            if following is not None:
                following.foresee(ops, x)
            out = self._routed(ops, h, route, residual, scale)
            return self._add_shared(ops, h, out, scale)

        return self.branch.follow(ops, x, compute)

    def _routed(self, ops: Ops[X], h: X, route: tuple[X, X], residual: X | None, scale: float) -> X:
        if self.latent is None:
            return ops.experts(h, self.experts, self.activation, route, residual, scale)
        (narrow,) = ops.linear(h, [self.latent.down])
        out = ops.experts(narrow, self.experts, self.activation, route, None)
        if residual is not None:
            return ops.linear_add(out, self.latent.up, residual, scale)
        (wide,) = ops.linear(out, [self.latent.up])
        return wide

    def foresee(self, ops: Ops[X], x: X) -> None:
        """Tries the router on the stream before the layer's attention, without a norm's bias."""
        norm = self.branch.norm
        ops.foresee(x, norm.weight, norm.epsilon, self.router_matrix, self.router)

    def _add_shared(self, ops: Ops[X], h: X, out: X, scale: float) -> X:
        if self.shared is None:
            return out
        if self.shared_gate is None:
            return ops.experts(h, self.shared, self.activation, None, out, scale)
        (gate,) = ops.linear(h, [self.shared_gate])
        return ops.gated_expert(h, self.shared, self.activation, ops.sigmoid(gate), out)
