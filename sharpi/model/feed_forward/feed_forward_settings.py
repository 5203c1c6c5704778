"""The settings that all feed-forwards of a model share, and the loading of a layer's weights.

The tensors in the file decide whether a layer is dense or routed.
"""

from msgspec import Struct
from msgspec.structs import replace

from sharpi.model.branch import Branch
from sharpi.model.feed_forward.expert_weights import load_expert_weights, optional_expert_weights
from sharpi.model.feed_forward.feed_forward import DenseFeedForward, FeedForward, RoutedFeedForward
from sharpi.model.feed_forward.parallel_feed_forward import load_parallel
from sharpi.model.feed_forward.swiglu_limits import LayerActivations
from sharpi.model.mixers.latent import load_latent
from sharpi.model.norm import load_norm, optional_norm
from sharpi.model.tensors import TensorSource
from sharpi.ops.interface import Activation, FloatArray, Router

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
    has_layer_norm: bool = False  # the norm is a layer norm, also without a bias in the file
    averages_shared: bool = False  # the mean of routed and shared result is used, not the sum

    def load(self, tensors: TensorSource, layer: int) -> FeedForward:
        """Loads the layer's weights; the layer has experts if the file has a router for it.

        Raises ModelFileError for a missing or misshapen tensor.
        """
        branch, hidden = self._branch(tensors), self.hidden_size
        if not tensors.has("ffn_gate_inp.weight"):
            expert_weights = load_expert_weights(tensors, "ffn_%s", hidden, gated=self.gated)
            return DenseFeedForward(branch, expert_weights, self._activations(layer).dense)
        if tensors.has("pre_ffw_norm_2.weight"):
            return load_parallel(tensors, branch, self.router, self.activation, hidden, layer)
        return self._load_routed(tensors, branch, layer)

    def _load_routed(self, tensors: TensorSource, branch: Branch, layer: int) -> RoutedFeedForward:
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

    def _branch(self, tensors: TensorSource) -> Branch:
        size, epsilon = self.hidden_size, self.norm_epsilon
        return Branch(
            norm=load_norm(tensors, self.norm, epsilon, size, is_layer_norm=self.has_layer_norm),
            post_norm=optional_norm(tensors, "post_ffw_norm", epsilon, size),
            scale=self.residual_scale,
        )


def _score_correction(tensors: TensorSource, num_experts: int) -> FloatArray | None:
    names = (name for name in SCORE_CORRECTIONS if tensors.has(name))
    return next((tensors.vector(name, num_experts) for name in names), None)
