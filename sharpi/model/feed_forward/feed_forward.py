"""A layer's feed-forward: dense, routed experts with an optional shared one, or both at once."""

from typing import Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.model.norm import Branch, Norm, load_norm, project
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, ExpertWeights, Matrix, Ops, Router, Unary, X


class Latent(Struct, frozen=True):
    """The projections from the hidden state into the latent space and back."""

    down: Matrix  # (width, hidden), before the experts
    up: Matrix  # (hidden, width), after their sum


def load_latent(tensors: TensorSource, hidden: int) -> Latent | None:
    """Loads the projections; returns None if the experts read the hidden state directly."""
    down = tensors.optional_matrix("ffn_latent_down", (None, hidden))
    if down is None:
        return None
    return Latent(down, tensors.matrix("ffn_latent_up", (hidden, down.rows)))


class FeedForward(Protocol):
    """The interface of one layer's feed-forward: its weights, and the operations of a step."""

    @property
    def experts(self) -> ExpertWeights | None:
        """The weights of the routed experts; None in a dense layer."""

    @property
    def activation(self) -> Activation: ...

    def feed(
        self, ops: Ops[X], x: X, following: "FeedForward | None", source: X | None = None
    ) -> X:
        """Returns the residual stream (hidden,) after the feed-forward.

        If `source` (hidden,) is not None, the feed-forward reads it instead of x. `following` is
        the next layer's feed-forward; its router may run here to predict its experts.
        """

    def predict_routes(self, ops: Ops[X], x: X) -> None:
        """Predicts the experts that this layer will choose.

        It runs the layer's router on the residual stream x (hidden,) of an earlier layer.
        """


class DenseFeedForward(Struct, frozen=True):
    """A dense feed-forward: down(act(gate h) * up h)."""

    branch: Branch
    expert_weights: ExpertWeights
    activation: Activation

    @property
    def experts(self) -> None:
        """None: a dense layer has no routed experts."""

    def feed(self, ops: Ops[X], x: X, following: FeedForward | None, source: X | None = None) -> X:
        def compute(h: X, residual: X | None, scale: float) -> X:
            return ops.experts(h, self.expert_weights, self.activation, None, residual, scale)

        return self.branch.follow(ops, x, compute, source)

    def predict_routes(self, ops: Ops[X], x: X) -> None:
        """Does nothing: a dense layer has no routes."""


class XieluFeedForward(Struct, frozen=True):
    """A dense feed-forward of Apertus: down(xielu(up h)); see Ops.unary."""

    branch: Branch
    up: Matrix
    down: Matrix
    parameters: tuple[float, ...]
    activation: Activation = Activation.IDENTITY  # of experts, of which there are none

    @property
    def experts(self) -> None:
        """None: there are no routed experts."""

    def feed(self, ops: Ops[X], x: X, following: FeedForward | None, source: X | None = None) -> X:
        def compute(h: X, residual: X | None, scale: float) -> X:
            (up,) = ops.linear(h, [self.up])
            activated = ops.unary(up, Unary.XIELU, *self.parameters)
            return project(ops, activated, self.down, residual, scale)

        return self.branch.follow(ops, x, compute, source)

    def predict_routes(self, ops: Ops[X], x: X) -> None:
        """Does nothing: a dense layer has no routes."""


class RoutedFeedForward(Struct, frozen=True):
    """A mixture of experts: the weighted sum of the chosen ones, plus a shared one if any."""

    branch: Branch
    experts: ExpertWeights
    activation: Activation
    shared_activation: Activation
    router: Router
    router_matrix: Matrix
    latent: Latent | None
    shared: ExpertWeights | None
    shared_gate: Matrix | None

    def feed(self, ops: Ops[X], x: X, following: FeedForward | None, source: X | None = None) -> X:
        def compute(h: X, residual: X | None, scale: float) -> X:
            (logits,) = ops.linear(h, [self.router_matrix])
            route = ops.route(logits, self.router)
            if following is not None:
                following.predict_routes(ops, x)
            out = self._routed(ops, h, route, residual, scale)
            return self._add_shared(ops, h, out, scale)

        return self.branch.follow(ops, x, compute, source)

    def _routed(self, ops: Ops[X], h: X, route: tuple[X, X], residual: X | None, scale: float) -> X:
        if self.latent is None:
            return ops.experts(h, self.experts, self.activation, route, residual, scale)
        (narrow,) = ops.linear(h, [self.latent.down])
        out = ops.experts(narrow, self.experts, self.activation, route, None)
        return project(ops, out, self.latent.up, residual, scale)

    def predict_routes(self, ops: Ops[X], x: X) -> None:
        """Predicts this layer's experts from an earlier stream x, without the bias of the norm."""
        norm = self.branch.norm
        if norm is not None:
            ops.predict_routes(x, norm.weight, norm.epsilon, self.router_matrix, self.router)

    def _add_shared(self, ops: Ops[X], h: X, out: X, scale: float) -> X:
        if self.shared is None:
            return out
        if self.shared_gate is None:
            return ops.experts(h, self.shared, self.shared_activation, None, out, scale)
        (gate,) = ops.linear(h, [self.shared_gate])
        weight = ops.unary(gate, Unary.SIGMOID)
        return ops.experts(h, self.shared, self.shared_activation, (None, weight), out)


def load_expert_weights(
    tensors: TensorSource, pattern: str, hidden: int, num_experts: int = 1, *, gated: bool = True
) -> ExpertWeights:
    """Loads gate and up (width, hidden) and down (hidden, width), stacked if there are experts.

    `pattern` is the name of the tensors, with %s in place of gate, up or down. Raises
    ModelFileError for a missing or misshapen tensor.
    """
    if gated and tensors.has(f"{pattern % 'gate_up'}.weight"):
        return _load_fused(tensors, pattern, hidden, num_experts)
    if gated and num_experts == 1 and _up_holds_gate(tensors, pattern, hidden):
        return _load_fused(tensors, pattern, hidden, num_experts, both="up")
    gate = tensors.stacked(pattern % "gate", num_experts, (None, hidden)) if gated else None
    width = gate.rows if gate else None
    up = tensors.stacked(pattern % "up", num_experts, (width, hidden))
    return ExpertWeights(
        gate, up, tensors.stacked(pattern % "down", num_experts, (hidden, up.rows))
    )


def optional_expert_weights(
    tensors: TensorSource, pattern: str, hidden: int, *, gated: bool = True
) -> ExpertWeights | None:
    """Loads a feed-forward of one expert; returns None if the file has no such tensors."""
    if not tensors.has(f"{pattern % 'up'}.weight"):
        return None
    return load_expert_weights(tensors, pattern, hidden, gated=gated)


def _up_holds_gate(tensors: TensorSource, pattern: str, hidden: int) -> bool:
    """Returns True if `up` also holds the gate's rows (Granite SWA); the gate has no tensor."""
    if tensors.has(f"{pattern % 'gate'}.weight") or not tensors.has(f"{pattern % 'down'}.weight"):
        return False
    up = tensors.stacked(pattern % "up", 1, (None, hidden))
    return up.rows == 2 * tensors.tensor(f"{pattern % 'down'}.weight").shape[-1]


def _load_fused(
    tensors: TensorSource, pattern: str, hidden: int, num_experts: int, both: str = "gate_up"
) -> ExpertWeights:
    """Loads experts of which gate and up are fused: first the gate's rows, then those of up.

    `both` replaces %s in the name of the fused matrix.
    """
    fused = tensors.stacked(pattern % both, num_experts, (None, hidden))
    width = fused.rows // 2
    gate_bias, up_bias = (None, None) if fused.bias is None else np.hsplit(fused.bias, [width])
    gate = replace(fused, rows=width, bias=gate_bias)
    up = replace(fused, rows=width, bias=up_bias, first_row=width)
    return ExpertWeights(gate, up, tensors.stacked(pattern % "down", num_experts, (hidden, width)))


class ParallelFeedForward(Struct, frozen=True):
    """Gemma 4: adds post_norm(dense_norm(dense(norm x)) + experts_norm(experts(expert_norm x))).

    `norm` and `post_norm` are those of `branch`.
    """

    branch: Branch
    activation: Activation
    dense: ExpertWeights
    dense_norm: Norm  # norm of the dense result
    expert_norm: Norm  # norm of the experts' input
    experts: ExpertWeights
    experts_norm: Norm  # norm of the experts' sum
    router_norm: Norm  # norm of the router's input, which is the residual stream
    router_matrix: Matrix
    router: Router

    def feed(self, ops: Ops[X], x: X, following: FeedForward | None, source: X | None = None) -> X:
        def compute(h: X, residual: X | None, scale: float) -> X:
            dense = self.dense_norm.apply(
                ops, ops.experts(h, self.dense, self.activation, None, None)
            )
            both = ops.add(dense, self._routed(ops, x, following), 1.0)
            return both if residual is None else ops.add(residual, both, scale)

        return self.branch.follow(ops, x, compute, source)

    def _routed(self, ops: Ops[X], x: X, following: FeedForward | None) -> X:
        (logits,) = ops.linear(self.router_norm.apply(ops, x), [self.router_matrix])
        route = ops.route(logits, self.router)
        if following is not None:
            following.predict_routes(ops, x)
        h = self.expert_norm.apply(ops, x)
        out = ops.experts(h, self.experts, self.activation, route, None)
        return self.experts_norm.apply(ops, out)

    def predict_routes(self, ops: Ops[X], x: X) -> None:
        norm = self.router_norm
        ops.predict_routes(x, norm.weight, norm.epsilon, self.router_matrix, self.router)


def load_parallel(
    tensors: TensorSource,
    branch: Branch,
    router: Router,
    activation: Activation,
    hidden: int,
    layer: int,
    epsilon: float,
) -> ParallelFeedForward:
    """Loads the layer's weights; raises ModelFileError for a missing or misshapen tensor."""
    experts = router.num_experts
    scale = tensors.vector("ffn_gate_inp.scale", hidden)
    return ParallelFeedForward(
        branch=branch,
        activation=activation,
        dense=load_expert_weights(tensors, "ffn_%s", hidden),
        dense_norm=load_norm(tensors, "post_ffw_norm_1", epsilon, hidden),
        expert_norm=load_norm(tensors, "pre_ffw_norm_2", epsilon, hidden),
        experts=replace(load_expert_weights(tensors, "ffn_%s_exps", hidden, experts), layer=layer),
        experts_norm=load_norm(tensors, "post_ffw_norm_2", epsilon, hidden),
        router_norm=Norm(scale / scale.dtype.type(hidden**0.5), epsilon),
        router_matrix=tensors.matrix("ffn_gate_inp", (experts, hidden), is_scaled=False),
        router=replace(router, layer=layer),
    )
