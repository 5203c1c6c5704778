"""The settings that all feed-forwards of a model share: activations, router, how to load a layer.

The tensors in the file decide whether a layer is dense or routed.
"""

import math

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import UnsupportedModelError
from sharpi.model.feed_forward.feed_forward import (
    DenseFeedForward,
    FeedForward,
    RoutedFeedForward,
    XieluFeedForward,
    load_expert_weights,
    load_latent,
    load_parallel,
    optional_expert_weights,
)
from sharpi.model.hyperparameter_reader import HyperparameterReader
from sharpi.model.norm import Branch, load_norm, optional_norm
from sharpi.model.spec import ArchitectureSpec
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, FloatArray, Router, Scoring

_ACTIVATIONS = {
    0.0: Activation.SILU,
    7.0: Activation.LIMITED_SILU_7,
    16.0: Activation.LIMITED_SILU_16,
}


class LayerActivations(Struct, frozen=True):
    """The activation functions of one layer's feed-forward."""

    routed: Activation  # of the routed experts
    dense: Activation  # of the shared expert, or of the feed-forward of a dense layer


def read_activations(
    reader: HyperparameterReader, activation: Activation
) -> tuple[LayerActivations, ...]:
    """Returns the activations of each layer, including layers for multi-token prediction.

    `activation` is the one of layers without limits. Raises ModelFileError, which names the key at
    fault.
    """
    count = reader.num_layers + reader.num_predict_layers
    routed, dense = (
        _read(reader, f"swiglu_clamp_{each}", activation, count) for each in ("exp", "shexp")
    )
    return tuple(LayerActivations(*pair) for pair in zip(routed, dense, strict=True))


def _read(
    reader: HyperparameterReader, key: str, activation: Activation, count: int
) -> list[Activation]:
    if not reader.has(key):
        return [activation] * count
    limits = [float(value) for value in reader.metadata.get_array(reader.name(key))]
    if len(limits) < reader.num_layers or activation is not Activation.SILU:
        raise reader.fault(f"{reader.name(key)} needs silu and a value for each layer")
    for limit in limits:
        if limit not in _ACTIVATIONS:
            raise reader.fault(f"{reader.name(key)} has {limit}; 0 (none), 7 and 16 work")
    found = [_ACTIVATIONS[limit] for limit in limits[:count]]
    return found + [activation] * (count - len(found))


def read_xielu(reader: HyperparameterReader) -> tuple[tuple[float, ...], ...]:
    """Returns each layer's parameters of xIELU, as Ops.unary takes them; () if the file has none.

    Raises ModelFileError, which names the key at fault.
    """
    if "xielu.alpha_p" not in reader.metadata:
        return ()
    keys = [f"xielu.{name}" for name in ("alpha_p", "alpha_n", "beta", "eps")]
    values = [np.atleast_1d(reader.metadata.get_array(key)).tolist() for key in keys]
    for key, given in zip(keys, values, strict=True):
        if len(given) != reader.num_layers:
            raise reader.fault(f"{key} has {len(given)} values, not {reader.num_layers}")
    return tuple(
        (_softplus(p), beta + _softplus(n), beta, eps)
        for p, n, beta, eps in zip(*values, strict=True)
    )


def _softplus(x: float) -> float:
    return math.log1p(math.exp(-abs(x))) + max(x, 0.0)


# Names of the tensor that is added to router scores for the choice of experts; Hy3 has no suffix.
SCORE_CORRECTIONS = ("exp_probs_b.bias", "exp_probs_b")


class FeedForwardSettings(Struct, frozen=True):
    """The settings that the feed-forwards of all layers have in common."""

    hidden_size: int
    norm_epsilon: float
    residual_scale: float
    activation: Activation
    router: Router  # without the bias and the index of a layer
    weighs_input: bool = False  # see ExpertWeights
    gated: bool = True  # False if there is only `up`
    layer_activations: tuple[LayerActivations, ...] = ()  # of each layer in the file
    norm: str = "ffn_norm"  # the name of the tensor of the norm before the feed-forward
    has_norm: bool = True  # False: there is no such norm
    post_norm_epsilon: float = 0.0  # of the norms behind mixers and feed-forwards
    has_layer_norm: bool = False  # the norm is a layer norm, also without a bias in the file
    xielu: tuple[tuple[float, ...], ...] = ()  # the parameters of each layer's xIELU
    averages_shared: bool = False  # the mean of routed and shared result is used, not the sum

    def load(self, tensors: TensorSource, layer: int) -> FeedForward:
        """Loads the layer's weights; the layer has experts if the file has a router for it.

        Raises ModelFileError for a missing or misshapen tensor.
        """
        branch = self.branch(tensors, self.norm, "post_ffw_norm")
        hidden = self.hidden_size
        if self.xielu:
            up = tensors.matrix("ffn_up", (None, hidden))
            down = tensors.matrix("ffn_down", (hidden, up.rows))
            return XieluFeedForward(branch, up, down, self.xielu[layer])
        if not tensors.has("ffn_gate_inp.weight"):
            expert_weights = load_expert_weights(tensors, "ffn_%s", hidden, gated=self.gated)
            return DenseFeedForward(branch, expert_weights, self._activations(layer).dense)
        if tensors.has("pre_ffw_norm_2.weight"):
            return load_parallel(
                tensors, branch, self.router, self.activation, hidden, layer, self.norm_epsilon
            )
        return self._load_routed(tensors, branch, layer)

    def _load_routed(self, tensors: TensorSource, branch: Branch, layer: int) -> RoutedFeedForward:
        if tensors.has("ffn_up.0.weight"):
            raise UnsupportedModelError(
                f"{tensors.file.path}: each expert is a tensor of its own, as in files of 2023 and"
                " early 2024; convert the model again, or take a newer file of it"
            )
        hidden, router, activations = self.hidden_size, self.router, self._activations(layer)
        bias = _score_correction(tensors, router.num_experts)
        latent = load_latent(tensors, hidden)
        width = latent.down.rows if latent else hidden
        expert_weights = load_expert_weights(
            tensors, "ffn_%s_exps", width, router.num_experts, gated=self.gated
        )
        shared = optional_expert_weights(tensors, "ffn_%s_shexp", hidden, gated=self.gated)
        if shared is not None and self.averages_shared:
            branch = replace(branch, scale=0.5 * branch.scale)
        return RoutedFeedForward(
            branch=branch,
            experts=replace(expert_weights, layer=layer, weighs_input=self.weighs_input),
            activation=activations.routed,
            shared_activation=activations.dense,
            router=replace(router, bias=bias, layer=layer),
            router_matrix=tensors.matrix("ffn_gate_inp", (router.num_experts, hidden)),
            latent=latent,
            shared=shared,
            shared_gate=tensors.optional_matrix("ffn_gate_inp_shexp", (1, hidden)),
        )

    def _activations(self, layer: int) -> LayerActivations:
        """Returns the layer's activations.

        The layer of an MTP head in a separate file is beyond `layer_activations`, and has the
        default activation.
        """
        if layer < len(self.layer_activations):
            return self.layer_activations[layer]
        return LayerActivations(self.activation, self.activation)

    def branch(self, tensors: TensorSource, norm: str, post_norm: str) -> Branch:
        """Returns the branch whose norms, before and behind it, have these names."""
        size = self.hidden_size
        return Branch(
            norm=load_norm(
                tensors, norm, self.norm_epsilon, size, is_layer_norm=self.has_layer_norm
            )
            if self.has_norm
            else None,
            post_norm=optional_norm(tensors, post_norm, self.post_norm_epsilon, size),
            scale=self.residual_scale,
        )


def _score_correction(tensors: TensorSource, num_experts: int) -> FloatArray | None:
    names = (name for name in SCORE_CORRECTIONS if tensors.has(name))
    return next((tensors.vector(name, num_experts) for name in names), None)


_SCORING_OF_KEY = {1: Scoring.SOFTMAX, 2: Scoring.SIGMOID, 3: Scoring.SOFTMAX_OF_CHOSEN}


def read_router(reader: HyperparameterReader, spec: ArchitectureSpec, is_corrected: bool) -> Router:
    """Returns the router settings that all layers share; `num_experts` is 0 in a dense model.

    `is_corrected` is True if the file has score corrections. Raises ModelFileError, which names
    the key at fault.
    """
    experts, used = reader.integer("expert_count", 0), reader.integer("expert_used_count", 0)
    if experts and not 0 < used <= experts:
        name = reader.name("expert_used_count")
        raise reader.fault(f"{name} is {used}, outside 1..{experts}, the number of experts")
    groups, used_groups = _groups(reader, experts)
    return Router(
        num_experts=experts,
        num_used=used,
        scoring=_scoring(reader, spec, is_corrected),
        normalise=reader.flag("expert_weights_norm", spec.router_normalises),
        scale=reader.number("expert_weights_scale", 0.0) or 1.0,
        num_groups=groups,
        groups_used=used_groups,
    )


def _groups(reader: HyperparameterReader, experts: int) -> tuple[int, int]:
    """Returns the number of expert groups and how many a token may use; (0, 0) without groups."""
    groups, used = (
        reader.integer("expert_group_count", 0),
        reader.integer("expert_group_used_count", 0),
    )
    if groups <= 1:
        return 0, 0
    if experts % groups:
        name = reader.name("expert_group_count")
        raise reader.fault(f"{name} is {groups}, which does not divide {experts}, the experts")
    if not 0 < used <= groups:
        name = reader.name("expert_group_used_count")
        raise reader.fault(f"{name} is {used}, outside 1..{groups}, the number of groups")
    return groups, used


def _scoring(reader: HyperparameterReader, spec: ArchitectureSpec, is_corrected: bool) -> Scoring:
    code = reader.integer("expert_gating_func", 0)
    if code == 0:
        return spec.corrected_scoring_kind if is_corrected else spec.scoring_kind
    if code not in _SCORING_OF_KEY:
        name = reader.name("expert_gating_func")
        raise reader.fault(f"{name} is {code}; 1, 2 and 3 are known")
    return _SCORING_OF_KEY[code]
