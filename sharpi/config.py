"""The values of flags and their SHARPI_* variables, as the user gave them.

Only the command line makes these values; no later code changes them or fills in missing ones.
"""

from pathlib import Path
from typing import Literal

from msgspec import Struct, field

Precision = Literal["auto", "int8", "int16", "f32"]
Device = Literal["auto", "cpu", "cuda"]
KvType = Literal["f16", "q8_0", "q5_1", "q5_0", "q4_0", "iq4_nl", "turbo3"]
RopeKind = Literal["none", "linear", "yarn"]
Load = Literal["auto", "map", "copy"]
Resident = Literal["first-n", "frequency", "ids"]
Miss = Literal["auto", "cpu", "stream", "load"]
DraftKind = Literal["ngram", "suffix", "mtp", "draft"]
Feature = Literal[
    "graphs",
    "folding",
    "programmatic-launches",
    "fused-attention",
    "tensor-cores",
    "prefetch",
    "vnni",
    "vbmi",
]

# The features that can be switched off one by one to find the cause of a wrong result.
FEATURES: dict[Feature, str] = {
    "graphs": "a GPU replays a token's kernels as one CUDA graph; without, it launches each",
    "folding": "a GPU's kernel goes on with what the next one would do, for single tokens",
    "programmatic-launches": "a GPU's kernel begins before the one before it ends, from Hopper on",
    "fused-attention": "a GPU computes attention over prompts with torch's fused kernel",
    "tensor-cores": "a GPU computes prompts and their attention in f16, and experts in tiles",
    "prefetch": "experts are read before they are needed",
    "vnni": "the CPU multiplies with AVX-512 VNNI; without, with AVX2",
    "vbmi": "the CPU decodes quant blocks with AVX-512 VBMI",
}


class KvTypes(Struct, frozen=True):
    """The types of keys and of values in the KV cache."""

    keys: KvType = "f16"
    values: KvType = "f16"

    def __str__(self) -> str:
        """Returns the name of the type, or of both types if they differ."""
        if self.keys == self.values:
            return self.keys
        return f"{self.keys} keys and {self.values} values"


F16_TYPES = KvTypes()


class RopeRequest(Struct, frozen=True):
    """The RoPE scaling that replaces the file's; a field that is None keeps the file's value."""

    kind: RopeKind | None = None
    factor: float | None = None  # of the context
    original_context: int | None = None  # positions that the model was trained on
    extrapolation: float | None = None  # YaRN: how much fast dimensions keep their frequency
    attention_factor: float | None = None  # YaRN: multiplies its own factor
    beta_fast: float | None = None  # YaRN: rotations from which on a frequency is kept
    beta_slow: float | None = None  # YaRN: rotations up to which it is divided


class SamplingParams(Struct, frozen=True):
    """The parameters of the sampler; names and defaults are llama.cpp's."""

    temperature: float = 0.8  # 0 is greedy
    top_k: int = 40  # 0 switches it off
    top_p: float = 0.95  # 1 switches it off
    min_p: float = 0.05  # 0 switches it off
    repeat_penalty: float = 1.0  # 1 switches it off
    presence_penalty: float = 0.0  # 0 switches it off
    frequency_penalty: float = 0.0  # 0 switches it off
    penalty_last_n: int = 64  # tokens back from the newest; -1 is the whole context
    seed: int | None = None  # None draws one


class ExpertConfig(Struct, frozen=True):
    """The settings of expert slots, and of what is recorded about experts; only for MoE models."""

    policy: str | None = None  # None chooses the policy that was best in measurements
    # Expert loads per token; None derives it from the policy's default.
    load_budget: float | None = None
    # Experts of each layer to pin; None lets sharpi decide, 0 pins none.
    warm_pin: int | None = None
    warm_pin_after: int | None = None  # accesses before they are pinned; None lets sharpi decide
    prefetch: bool = True
    predictor: str | None = None  # None chooses the predictor that was best in measurements
    resident: Resident | None = None  # the fixed set of the static policy
    resident_ids: str | None = None  # the ids for `resident` = "ids"
    warmup_tokens: int = 4096  # tokens counted first for `resident` = "frequency"
    # How experts that are not on the GPU are computed: "cpu" on the CPU, "stream" on the GPU, which
    # reads them over the bus, "load" on the GPU after a copy to a slot, "auto" in the fastest of
    # these ways.
    miss: Miss = "auto"
    # The size of a GPU's buffers for a prompt's routed tokens, in multiples of tokens * experts per
    # token; None sizes them for the most tokens that can be routed.
    capacity_factor: float | None = None
    paged_stash: bool = False  # keeps long prompts' hidden states between layers in pages
    stash_page_tokens: int = 64  # tokens per page
    stash_gpu_factor: float = 1.1  # pages on the GPU, as a multiple of those expected to be needed
    # Pages in page-locked RAM beyond those on the GPU, as a multiple of the same number.
    stash_cpu_factor: float = 0.0
    stats: Path | None = None  # file written when the engine closes
    trace: Path | None = None  # file written when the engine closes
    profile: Path | None = None  # file written when the engine closes
    trace_routes: bool = False  # prints every token's routes


class SpeculationConfig(Struct, frozen=True):
    """The kinds of drafts to make, and their lengths; without kinds, no drafts are made.

    A draft is one or several tokens that may come next. One step checks several tokens, and the
    text is the same as without drafts.
    """

    kinds: tuple[DraftKind, ...] = ()  # in the order in which they are asked for drafts
    is_auto: bool = False  # chooses draft lengths by what they gain; otherwise each is `max_drafts`
    max_drafts: int | None = None  # tokens of one draft; None lets sharpi decide
    min_drafts: int = 0  # shorter drafts are not checked
    min_probability: float = 0.0  # a draft ends before a token less likely than this
    draft_model: Path | None = None
    # Not requested by the user: drafts run only where they are known to pay.
    is_default: bool = False

    @property
    def is_on(self) -> bool:
        """True if these settings allow drafts."""
        return bool(self.kinds) and self.max_drafts != 0


# The kinds of drafts that commands use by default.
USUAL_DRAFTS = SpeculationConfig(kinds=("ngram", "suffix", "mtp"), is_auto=True, is_default=True)


RemoteExperts = Literal["auto", "on", "off"]


class ClusterConfig(Struct, frozen=True):
    """The machines that run one model together; the first one receives the requests."""

    # The first is this machine's address; empty to join another machine's run.
    hosts: tuple[str, ...] = ()
    first: str = ""  # the first machine's address, to join its run
    port: int = 29400  # where the first listens
    link: str | None = None  # network interface; None uses the one that routes to the first machine
    allows_public: bool = False  # the interface may have a public address
    # Whether machines that hold an expert in RAM compute it for machines that do not.
    remote_experts: RemoteExperts = "auto"
    only_lends: bool = False  # this machine runs no layers, and lends its RAM for experts


class RunConfig(Struct, frozen=True):
    """The parameters for loading and running a model."""

    model: Path
    context_size: int | None = None  # None takes the smaller of the model's own and 4,096
    num_threads: int | None = None  # None takes the performance cores
    num_batch_threads: int | None = None  # None follows `num_threads`
    batch_size: int = 512
    # Precision of activations: "auto" takes "int16" for small models, which lose most by rounding,
    # and otherwise "int8".
    precision: Precision = "auto"
    # The types of keys and values in the KV cache: `kv_type` sets both, `key_type` and `value_type`
    # one each. If none is given, f16 is used, or q8_0 where f16 does not fit.
    kv_type: KvType | None = None
    key_type: KvType | None = None
    value_type: KvType | None = None
    kv_keep: int | None = None  # positions that each head keeps of a long prompt; None keeps all
    rope: RopeRequest = RopeRequest()
    context_shift: bool = False
    instruction_set: str | None = None  # None takes the best that the machine has
    # "map" uses weights where the file is mapped; "copy" reads all of them into huge pages; "auto"
    # copies only the weights that a GPU reads from RAM, and maps the others.
    load: Load = "auto"
    ram: int | None = None  # bytes for weights, KV cache and buffers; None takes the free memory
    # Bytes of each GPU for weights, KV cache and buffers; None takes the free memory. Where GPUs
    # differ, `vrams` has the bytes of each, and `vram` the largest of them.
    vram: int | None = None
    vrams: tuple[int, ...] = ()
    device: Device = "auto"
    gpus: tuple[int, ...] = ()  # CUDA's indices; without any, as many as the model needs
    tensor_split: tuple[float, ...] = ()  # the shares of the layers that these GPUs get
    gpu_layers: int | None = None  # layers on the GPU, at most
    moe_slots: int | None = None  # expert slots per layer, in the fastest tier that has slots
    cpu_moe: bool = False  # keeps all experts off the GPU
    num_cpu_moe: int = 0  # keeps the experts of this many layers, from the first on, off the GPU
    num_parallel: int = 1  # sequences that are computed at once, at most
    disabled: tuple[Feature, ...] = ()  # features switched off to find a bug
    prompt_cache: Path | None = None  # folder of pages of the KV cache; None keeps none on disk
    prompt_cache_bytes: int = 16 << 30  # the most bytes of all files in that folder
    trace_vram: bool = False  # prints every allocation on the GPU
    experts: ExpertConfig = field(default_factory=ExpertConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    cluster: ClusterConfig | None = None  # None for this machine alone


class GenerationRequest(Struct, frozen=True):
    """Limits and parameters of one generation."""

    max_tokens: int = -1  # -1 generates until the end
    stop: tuple[str, ...] = ()  # texts that end the generation
    # The markers around reasoning, in which `stop` does not act; the first is "" where the prompt
    # ends within reasoning.
    reasoning: tuple[str, str] | None = None
    ignore_end: bool = False  # continues after an end token
    sampling: SamplingParams = field(default_factory=SamplingParams)
    # Pairs of a token id and the value that is added to its logit before penalties and filters.
    logit_bias: tuple[tuple[int, float], ...] = ()
    # The number of best tokens reported with each token; None reports no logprobs at all.
    num_logprobs: int | None = None
    shows_special: bool = False  # control tokens are part of the text, except the end token
