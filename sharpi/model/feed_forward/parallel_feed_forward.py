"""A dense feed-forward and routed experts in parallel, each with separate norms (Gemma 4)."""

from msgspec import Struct
from msgspec.structs import replace

from sharpi.model.feed_forward.feed_forward import FeedForward, load_expert_weights
from sharpi.model.norm import Branch, Norm, load_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, ExpertWeights, Matrix, Ops, Router, X


class ParallelFeedForward(Struct, frozen=True):
    """Adds post_norm(dense_norm(dense(norm x)) + experts_norm(experts(expert_norm x))) to x.

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
        """Returns the residual stream (hidden,) after the dense feed-forward and the experts."""

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
        """Predicts this layer's experts: runs its router on an earlier residual stream x."""
        norm = self.router_norm
        ops.predict_routes(x, norm.weight, norm.epsilon, self.router_matrix, self.router)


def load_parallel(
    tensors: TensorSource,
    branch: Branch,
    router: Router,
    activation: Activation,
    hidden: int,
    layer: int,
) -> ParallelFeedForward:
    """Loads the layer's weights; raises ModelFileError for a missing or misshapen tensor."""
    epsilon, experts = branch.norm.epsilon, router.num_experts
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
