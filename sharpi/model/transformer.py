"""The step of a decoder-only transformer, written once for all implementations of `Ops`.

With the reference operations a step computes values; with a recorder it records operations. Each
part of a layer has its own module.
"""

from typing import Generic

from sharpi.model.config import ModelConfig
from sharpi.model.layer import Layer
from sharpi.model.mixers.rope import Angles
from sharpi.model.weights import ModelWeights
from sharpi.ops.interface import Ops, X


class Transformer(Generic[X]):
    """One model, run with one implementation of the operations; shapes are per token.

    The wanted outputs are the tokens for which logits are needed. With `trims_last_layer`, the last
    layer's feed-forward is computed for these only. With `keeps_hidden` it is computed for all
    tokens, and `hidden` (hidden,) holds the hidden state of each token after the output norm.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        ops: Ops[X],
        *,
        trims_last_layer: bool = True,
        keeps_hidden: bool = False,
    ) -> None:
        self._config = config
        self._weights = weights
        self._ops = ops
        self._trims_last_layer = trims_last_layer and not keeps_hidden
        self._keeps_hidden = keeps_hidden
        self.hidden: X | None = None

    def step(self) -> X:
        """Computes the logits (vocabulary,) of the tokens for which they are needed."""
        return self.logits(self.layers(self.embed(), range(self._config.num_layers)))

    def embed(self) -> X:
        """Computes the input of the first layer, (hidden,)."""
        norm = self._weights.embedding_norm
        x = self._ops.embed(self._weights.embedding, self._config.embedding_scale)
        return x if norm is None else norm.apply(self._ops, x)

    def layers(self, x: X, indices: range) -> X:
        """Computes the layers `indices` in order; x (hidden,) is the input of the first of them.

        Returns the output (hidden,) of the last of them. The output of the model's last layer only
        has rows for tokens that need logits, unless `keeps_hidden` is set.
        """
        angles = Angles(self._ops, self._weights.rope_divisors)
        inputs = self._layer_inputs(x, indices)
        last = self._config.num_layers - 1
        for i in indices:
            layer, trims = self._weights.layers[i], i == last and self._trims_last_layer
            source = x if layer.is_parallel else None
            x = layer.mix(self._ops, x, angles)
            if trims:
                x = self._ops.select_outputs(x)
                source = None if source is None else self._ops.select_outputs(source)
            x = layer.feed(self._ops, x, self._following(i, indices.stop), source)
            x = layer.finish(self._ops, x, self._layer_input(inputs, i, trims))
        if last in indices and not self._trims_last_layer and not self._keeps_hidden:
            x = self._ops.select_outputs(x)
        return x

    def _following(self, layer: int, stop: int) -> Layer | None:
        """Returns the next layer with a feed-forward after `layer` and below `stop`, or None."""
        later = self._weights.layers[layer + 1 : stop]
        return next((each for each in later if each.feed_forward is not None), None)

    def _layer_inputs(self, x: X, indices: range) -> X | None:
        """Computes the per-layer inputs of all layers; None if the model has none."""
        inputs = self._weights.layer_inputs
        if inputs is None:
            return None
        return inputs.compute(self._ops, x if indices.start == 0 else self.embed())

    def _layer_input(self, inputs: X | None, layer: int, trims: bool) -> X | None:
        if inputs is None or self._weights.layer_inputs is None:
            return None
        width = self._weights.layer_inputs.width
        own = self._ops.part(inputs, layer * width, width)
        return self._ops.select_outputs(own) if trims else own

    def logits(self, x: X) -> X:
        """Computes the logits (vocabulary,) from the output of the last layer."""
        ops = self._ops
        x = self._weights.output_norm.apply(ops, x)
        if self._keeps_hidden:
            self.hidden = x
            x = ops.select_outputs(x)
        (logits,) = ops.linear(x, [self._weights.output])
        return self._config.final_logits(ops, logits)
