"""The step of a decoder-only transformer, written once over `Ops`.

Run over the reference it computes; run over the recorder it records.
"""

from typing import Generic

from sharpi.model.config import ModelConfig
from sharpi.model.rope import RopeScaling, rope_table
from sharpi.model.weights import AttentionWeights, FeedForwardWeights, ModelWeights
from sharpi.ops.interface import AttentionShape, Ops, RopeTable, Router, X


class Transformer(Generic[X]):
    """One model over one kind of values.

    The last layer's experts work for the wanted outputs only, where it `trims_last_layer`.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        ops: Ops[X],
        *,
        trims_last_layer: bool = True,
    ) -> None:
        self._config = config
        self._weights = weights
        self._ops = ops
        self._trims_last_layer = trims_last_layer

    def step(self) -> X:
        """Logits (vocabulary,) of the wanted outputs."""
        return self.logits(self.layers(self.embed(), range(self._config.num_layers)))

    def embed(self) -> X:
        """What the first layer takes, (hidden,)."""
        return self._ops.embed(self._weights.embedding, self._config.embedding_scale)

    def layers(self, x: X, indices: range) -> X:
        """Some of the layers; after the last of all only the wanted outputs are left."""
        angles = self._angles()
        last = self._config.num_layers - 1
        for i in indices:
            layer, shape = self._weights.layers[i], self._config.attention[i]
            x = self._attention(x, layer.attention, shape, angles[bool(shape.window)])
            if i == last and self._trims_last_layer:
                x = self._ops.select_outputs(x)
            following = None if i == last else self._weights.layers[i + 1].feed_forward
            x = self._feed_forward(x, layer.feed_forward, following)
        if last in indices and not self._trims_last_layer:
            x = self._ops.select_outputs(x)
        return x

    def _angles(self) -> dict[bool, X]:
        """Rotary angles of layers without and with a window; one table when they agree."""
        tables = rope_tables(self._config, self._weights)
        everywhere = self._ops.rope_angles(tables[False])
        if tables[True] is tables[False]:
            return {False: everywhere, True: everywhere}
        return {False: everywhere, True: self._ops.rope_angles(tables[True])}

    def _attention(self, x: X, w: AttentionWeights, shape: AttentionShape, angles: X) -> X:
        ops, epsilon = self._ops, self._config.norm_epsilon
        h = ops.rms_norm(x, w.norm, epsilon)
        q, k, v = ops.linear(h, [w.q, w.k, w.v])
        if w.q_norm is not None:
            q = ops.rms_norm(q, w.q_norm, epsilon, _groups(w.q_norm.size, w.q.rows))
        if w.k_norm is not None:
            k = ops.rms_norm(k, w.k_norm, epsilon, _groups(w.k_norm.size, w.k.rows))
        interleaved = self._config.spec.rope_pairing == "interleaved"
        q = ops.rope(q, shape.num_heads, angles, interleaved)
        k = ops.rope(k, shape.num_kv_heads, angles, interleaved)
        mixed = ops.attention(q, k, v, shape)
        scale = self._config.residual_scale
        if w.post_norm is None:
            return ops.linear_add(mixed, w.output, x, scale)
        (projected,) = ops.linear(mixed, [w.output])
        return ops.add(x, ops.rms_norm(projected, w.post_norm, epsilon), scale)

    def _feed_forward(self, x: X, w: FeedForwardWeights, following: FeedForwardWeights | None) -> X:
        h = self._ops.rms_norm(x, w.norm, self._config.norm_epsilon)
        route = self._route(x, h, w, following)
        if w.post_norm is None:
            return self._expert_sum(h, w, route, x)
        out = self._expert_sum(h, w, route, None)
        normed = self._ops.rms_norm(out, w.post_norm, self._config.norm_epsilon)
        return self._ops.add(x, normed, self._config.residual_scale)

    def _route(
        self, x: X, h: X, w: FeedForwardWeights, following: FeedForwardWeights | None
    ) -> tuple[X, X] | None:
        """Experts and weights, None in a dense layer; and a guess at those of the next layer."""
        ops = self._ops
        if w.router is None:
            return None
        (logits,) = ops.linear(h, [w.router])
        route = ops.route(logits, self._router(w))
        if following is not None and following.router is not None:
            epsilon, router = self._config.norm_epsilon, self._router(following)
            ops.foresee(x, following.norm, epsilon, following.router, router)
        return route

    def _expert_sum(
        self, h: X, w: FeedForwardWeights, route: tuple[X, X] | None, residual: X | None
    ) -> X:
        """The feed-forward's output; with a residual, residual + residual_scale * output."""
        ops, activation = self._ops, self._config.spec.activation_kind
        scale = 1.0 if residual is None else self._config.residual_scale
        if w.dense is not None:
            return ops.experts(h, w.dense, activation, None, residual, scale)
        assert w.experts is not None
        out = ops.experts(h, w.experts, activation, route, residual, scale)
        if w.shared is None:
            return out
        if w.shared_gate is None:
            return ops.experts(h, w.shared, activation, None, out, scale)
        (gate,) = ops.linear(h, [w.shared_gate])
        return ops.gated_expert(h, w.shared, activation, ops.sigmoid(gate), out)

    def _router(self, w: FeedForwardWeights) -> Router:
        c = self._config
        return Router(
            num_experts=c.num_experts,
            num_used=c.num_experts_per_token,
            scoring=c.expert_scoring,
            normalise=c.expert_weights_normalised,
            scale=c.expert_weights_scale,
            bias=w.router_bias,
            layer=w.layer,
        )

    def logits(self, x: X) -> X:
        """Logits (vocabulary,) for what the last layer left."""
        c = self._config
        h = self._ops.rms_norm(x, self._weights.output_norm, c.norm_epsilon)
        (logits,) = self._ops.linear(h, [self._weights.output])
        if c.logit_scale != 1.0:
            logits = self._ops.scale(logits, c.logit_scale)
        return self._ops.soft_cap(logits, c.final_soft_cap) if c.final_soft_cap else logits


def _groups(norm_size: int, width: int) -> int:
    """Heads to norm apart; a norm as wide as the projection covers it whole."""
    return width // norm_size


def rope_tables(config: ModelConfig, weights: ModelWeights) -> dict[bool, RopeTable]:
    """The tables of layers without (False) and with (True) a sliding window."""
    scaled = rope_table(
        config.rope_dims, config.rope_base, config.rope_scaling, weights.rope_divisors
    )
    local = config.local_rope_base
    if not local:
        return {False: scaled, True: scaled}
    return {False: scaled, True: rope_table(config.rope_dims, local, RopeScaling())}
