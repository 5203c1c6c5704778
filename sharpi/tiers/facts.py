"""ModelFacts: the sizes in bytes of a model's parts, as encoded in its file."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sharpi.gguf.header import is_expert_matrix, layer_of
from sharpi.gguf.reader import GgufFile, Tensor
from sharpi.model.config import ModelConfig
from sharpi.model.mixers.attention import AttentionSettings
from sharpi.model.mixers.mixer import MixerSettings
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS, kv_bytes
from sharpi.ops.recurrent import state_bytes
from sharpi.settings import F16_TYPES, KvTypes
from sharpi.system.files import widest_range
from sharpi.tiers.scratch import BufferWidths, read_widths


class LayerFacts(Struct, frozen=True):
    """The sizes of one layer, as encoded in the file."""

    dense_weights_bytes: int  # all weights except the routed experts
    kv_page_bytes: int  # KV cache of 64 positions
    num_experts: int = 0  # 0 in a dense layer
    # gate, up and down of one expert; None if it cannot be told from the tensors
    expert_bytes: int | None = 0
    # a buffer for any expert of the layer: aligned file ranges of its three matrices
    slot_bytes: int = 0
    state_bytes: int = 0  # one copy of the recurrent state
    # the earlier layer whose keys and values, or indexer's choice, this one reads, on the same
    # processor
    kv_layer: int | None = None
    has_window: bool = False  # sliding-window attention

    @property
    def experts_bytes(self) -> int:
        """The bytes of all routed experts; 0 if their size is unknown."""
        return self.num_experts * (self.expert_bytes or 0)


class ModelFacts(Struct, frozen=True):
    """The sizes of all parts of a model."""

    layers: tuple[LayerFacts, ...]
    embedding_bytes: int  # 0 if the output matrix also serves as the embedding
    output_bytes: int  # weights outside of layers that every token reads, such as the output matrix
    num_experts_per_token: int
    widths: BufferWidths
    has_head: bool = False  # the last of `layers` is an MTP head, which is only used for drafts
    # For each layer that a head on the CPU reads: the bytes of a page of its keys and values.
    read_by_head: Mapping[int, int] = {}
    rank_layers: range | None = None  # the layers that this machine runs; None for all
    # For each layer, the cumulative shares of use of its most used experts; see `hit_rate`. Empty
    # without a profile.
    use_shares: tuple[tuple[float, ...], ...] = ()
    # The misses of earlier runs, by the share of experts that had slots; see `hit_rate`.
    known_misses: Mapping[float, float] = {}

    @property
    def own_layers(self) -> range:
        """The layers that this machine runs; with the MTP head if it runs the whole model."""
        return range(len(self.layers)) if self.rank_layers is None else self.rank_layers

    def only(self, layers: range) -> "ModelFacts":
        """Returns the sizes for a machine with `layers`; with layer 0 it has what is outside."""
        own = tuple(
            layer if index in layers else LayerFacts(0, 0)
            for index, layer in enumerate(self.layers)
        )
        if self.has_head and 0 in layers:
            own = (*own[:-1], self.layers[-1])
        facts = replace(self, layers=own, rank_layers=layers)
        return facts if 0 in layers else replace(facts, embedding_bytes=0, output_bytes=0)

    @property
    def without_head(self) -> "ModelFacts":
        """Returns the sizes without the MTP head, which always runs on the CPU."""
        if not self.has_head:
            return self
        return replace(self, layers=self.layers[:-1], has_head=False, read_by_head={})

    @property
    def largest_slot(self) -> int:
        """The bytes of a slot that fits an expert of any layer."""
        return max((layer.slot_bytes for layer in self.layers), default=0)

    @property
    def dense_weights_bytes(self) -> int:
        """The bytes of all weights but those of routed experts."""
        in_layers = sum(layer.dense_weights_bytes for layer in self.layers)
        return self.embedding_bytes + self.output_bytes + in_layers


def read_facts(file: GgufFile, config: ModelConfig, kv_types: KvTypes = F16_TYPES) -> ModelFacts:
    """Returns the sizes from the file's tensor infos; does not read any weights."""
    by_layer: dict[int, list[Tensor]] = defaultdict(list)
    elsewhere: dict[str, int] = {}
    for name, tensor in file.tensors.items():
        layer = layer_of(name)
        if layer is not None:
            by_layer[layer].append(tensor)
        else:
            elsewhere[name] = tensor.num_bytes
    is_tied = "output.weight" not in elsewhere
    embedding = 0 if is_tied else elsewhere.get("token_embd.weight", 0)
    return ModelFacts(
        layers=tuple(
            _layer(by_layer[i], config, i, kv_types)
            for i in range(config.num_layers + config.has_head)
        ),
        embedding_bytes=embedding,
        output_bytes=sum(elsewhere.values()) - embedding,
        num_experts_per_token=config.num_experts_per_token,
        widths=read_widths(file, config),
        has_head=config.has_head,
        read_by_head=_read_by_head(config, kv_types),
    )


def _read_by_head(config: ModelConfig, kv_types: KvTypes) -> dict[int, int]:
    """Returns the page bytes of those layers of which Gemma 4's assistant reads the KV cache."""
    if config.assistant is None:
        return {}
    shapes = [mixer.shape for mixer in config.assistant.mixers]
    return {shape.layer: kv_bytes([shape], PAGE_POSITIONS, kv_types) for shape in shapes}


def _layer(
    tensors: Sequence[Tensor], config: ModelConfig, index: int, kv_types: KvTypes
) -> LayerFacts:
    shapes = [shape for shape in config.attention if shape.layer == index]
    return replace(
        _sizes(tensors, config, index, kv_bytes(shapes, PAGE_POSITIONS, kv_types)),
        kv_layer=_kv_layer(_mixer(config, index)),
        has_window=bool(shapes) and all(shape.window for shape in shapes),
    )


def _mixer(config: ModelConfig, index: int) -> MixerSettings:
    if index == config.num_layers and config.head_mixer is not None:
        return config.head_mixer
    return config.mixers[index]


def _kv_layer(mixer: MixerSettings) -> int | None:
    if isinstance(mixer, AttentionSettings) and mixer.kv_shape is None:
        return mixer.shape.layer
    return getattr(mixer, "takes_choice", None)


def _sizes(tensors: Sequence[Tensor], config: ModelConfig, index: int, kv_page: int) -> LayerFacts:
    routed = [t for t in tensors if is_expert_matrix(t.name)]
    is_moe = bool(routed) or any(".ffn_gate_inp." in t.name for t in tensors)
    states = state_bytes(_mixer(config, index).state_shapes)
    dense_weights = sum(t.num_bytes for t in tensors) - sum(t.num_bytes for t in routed)
    if not is_moe:
        return LayerFacts(dense_weights, kv_page, state_bytes=states)
    count = config.num_experts
    if not routed or not all(_is_stacked(t, count) for t in routed):
        return LayerFacts(dense_weights, kv_page, count, None, state_bytes=states)
    size = sum(t.num_bytes for t in routed) // count
    return LayerFacts(dense_weights, kv_page, count, size, _slot_bytes(routed), states)


def _is_stacked(tensor: Tensor, num_experts: int) -> bool:
    """Returns True if the tensor holds the matrices of all experts."""
    return len(tensor.shape) == 3 and tensor.shape[0] == num_experts


def _slot_bytes(routed: Iterable[Tensor]) -> int:
    """Returns the bytes of a slot: the largest aligned file ranges of an expert's matrices."""
    return sum(widest_range(t.offset, t.num_bytes // t.shape[0], t.shape[0]) for t in routed)
