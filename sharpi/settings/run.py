"""RunConfig: the settings for loading and running a model, as the user gave them.

Only the command line makes these values; no later code changes them or fills in missing ones.
"""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from sharpi.settings.cluster import ClusterConfig
from sharpi.settings.experts import ExpertConfig
from sharpi.settings.option import Option, positive
from sharpi.settings.placement import device_of, features_of, layers_of, memory, shares_of, vram_of
from sharpi.settings.speculation import SpeculationConfig

Precision = Literal["auto", "int8", "int16", "f32"]
Device = Literal["auto", "cpu", "cuda"]
KvType = Literal["f16", "q8_0", "q5_1", "q5_0", "q4_0", "iq4_nl", "turbo3"]
RopeKind = Literal["none", "linear", "yarn"]
Load = Literal["auto", "map", "copy"]
InstructionSet = Literal[
    "avx512_vbmi", "avx512_vnni", "avx_vnni", "avx2", "sse41", "neon", "portable"
]

CONTEXT, MACHINE, MEMORY, FAULTS = "Context", "Machine", "Memory", "Finding a fault"
_LEAST_KEPT = 64  # positions, for --kv-keep: twice the last ones, which are always kept


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

    GROUP: ClassVar = "RoPE scaling"

    kind: Annotated[
        RopeKind | None,
        Option(
            "--rope-scaling",
            "How positions beyond the trained context are scaled.",
            shown_default="the file's, else linear",
        ),
    ] = None
    factor: Annotated[
        float | None,
        Option(
            "--rope-scale",
            "Factor by which the context grows.",
            "N",
            parse=positive,
            shown_default="the file's",
        ),
    ] = None
    original_context: Annotated[
        int | None,
        Option(
            "--yarn-orig-ctx",
            "YaRN: tokens of context that the model was trained on.",
            "N",
            min=1,
            shown_default="the file's",
        ),
    ] = None
    extrapolation: Annotated[
        float | None,
        Option(
            "--yarn-ext-factor",
            "YaRN: how much fast dimensions keep their frequency, 0 for not at all.",
            "N",
            min=0,
            max=1,
            shown_default="1",
        ),
    ] = None
    attention_factor: Annotated[
        float | None,
        Option(
            "--yarn-attn-factor",
            "YaRN: multiplies its attention factor.",
            "N",
            parse=positive,
            shown_default="1",
        ),
    ] = None
    beta_fast: Annotated[
        float | None,
        Option(
            "--yarn-beta-fast",
            "YaRN: keep frequencies of at least N rotations in the trained context.",
            "N",
            parse=positive,
            shown_default="32",
        ),
    ] = None
    beta_slow: Annotated[
        float | None,
        Option(
            "--yarn-beta-slow",
            "YaRN: divide frequencies of at most N rotations in the trained context.",
            "N",
            parse=positive,
            shown_default="1",
        ),
    ] = None


class RunConfig(Struct, frozen=True):
    """The parameters for loading and running a model."""

    model: Path = Path()
    context_size: Annotated[
        int | None,
        Option(
            "-c --ctx-size",
            "Tokens of context.",
            "N",
            min=1,
            shown_default="the model's, at most 4096",
            group=CONTEXT,
            is_everyday=True,
        ),
    ] = None
    num_threads: Annotated[
        int | None,
        Option(
            "-t --threads",
            "Threads for decode.",
            "N",
            min=1,
            max=1024,
            shown_default="physical cores",
            group=MACHINE,
            is_everyday=True,
        ),
    ] = None
    num_batch_threads: Annotated[
        int | None,
        Option(
            "-tb --threads-batch",
            "Threads for prefill.",
            "N",
            min=1,
            max=1024,
            shown_default="same as --threads",
            group=MACHINE,
        ),
    ] = None
    batch_size: Annotated[
        int, Option("-b --batch-size", "Tokens per prefill step.", "N", min=1, group=MACHINE)
    ] = 512
    precision: Annotated[
        Precision,
        Option(
            "--precision",
            "Precision of activations. auto: int16 for small models, int8 for others; f32 is "
            "for comparison with other programs.",
            group=MACHINE,
        ),
    ] = "auto"
    kv_type: Annotated[
        KvType | None,
        Option(
            "--kv-type",
            "Type of keys and values in the KV cache. All but f16 are rotated and lose a little: "
            "see docs/kv-cache.md.",
            shown_default="f16, or q8_0 where f16 has no room",
            group=MACHINE,
        ),
    ] = None
    key_type: Annotated[
        KvType | None,
        Option(
            "-ctk --cache-type-k",
            "Type of keys alone.",
            shown_default="--kv-type",
            group=MACHINE,
        ),
    ] = None
    value_type: Annotated[
        KvType | None,
        Option(
            "-ctv --cache-type-v",
            "Type of values alone.",
            shown_default="--kv-type",
            group=MACHINE,
        ),
    ] = None
    kv_keep: Annotated[
        int | None,
        Option(
            "--kv-keep",
            "Positions of a longer prompt that each head keeps: those that the prompt's last "
            "tokens use most. CPU only; see docs/kv-cache.md.",
            "N",
            min=_LEAST_KEPT,
            shown_default="all",
            group=MACHINE,
        ),
    ] = None
    rope: RopeRequest = RopeRequest()
    context_shift: Annotated[
        bool,
        Option(
            "--context-shift/--no-context-shift",
            "When the context is full, drop its older half and continue.",
            group=CONTEXT,
        ),
    ] = False
    instruction_set: Annotated[
        InstructionSet | None,
        Option(
            "--isa",
            "Instruction set of the CPU kernels.",
            shown_default="the machine's best",
            group=MACHINE,
        ),
    ] = None
    load: Annotated[
        Load,
        Option(
            "--load",
            "map: weights are used from the mapped file; copy: they are read into huge pages; auto:"
            " those that a GPU reads from RAM are copied.",
            group=MEMORY,
        ),
    ] = "auto"
    ram: Annotated[  # bytes
        int | None,
        Option(
            "--ram",
            "RAM for weights, KV cache and buffers, as in 12GiB or 2.5G.",
            "SIZE",
            parse=memory,
            shown_default="what is free, less a margin",
            group=MEMORY,
            is_everyday=True,
        ),
    ] = None
    # Bytes of each GPU; where they differ, `vrams` has those of each, and `vram` the largest.
    vram: Annotated[
        int | None,
        Option(
            "--vram",
            "Maximum GPU memory to use; 24GiB,16GiB for two GPUs.",
            "SIZE",
            parse=vram_of,
            shown_default="what is free",
            group=MEMORY,
            is_everyday=True,
        ),
    ] = None
    vrams: tuple[int, ...] = ()
    device: Annotated[
        Device,
        Option(
            "--device",
            "auto: a GPU if one is usable, else the CPU, and further GPUs where one does not hold "
            "the model; cuda:0,1 (or CUDA0,CUDA1): these, which divide the layers.",
            "auto|cpu|cuda",
            parse=device_of,
            group=MEMORY,
        ),
    ] = "auto"
    gpus: tuple[int, ...] = ()  # CUDA's indices; without any, as many as the model needs
    tensor_split: Annotated[
        tuple[float, ...],
        Option(
            "-ts --tensor-split",
            "Shares of the layers that the GPUs get, as in 3,1.",
            "N,N",
            parse=shares_of,
            shown_default="by memory and speed",
            group=MEMORY,
        ),
    ] = ()
    gpu_layers: Annotated[
        int | None,
        Option(
            "-g --gpu-layers -ngl --n-gpu-layers --ngl",
            "Maximum number of whole layers on the GPU; -1, auto or all: as many as fit.",
            "N",
            parse=layers_of,
            shown_default="as many as fit",
            group=MEMORY,
        ),
    ] = None
    moe_slots: Annotated[  # per layer, in the fastest tier that has slots
        int | None,
        Option(
            "--moe-slots --moe-expert-cache-size",
            "Slots for experts in each layer.",
            "N",
            min=1,
            also="SHARPI_MOE_EXPERT_CACHE_SIZE",
            shown_default="as many as fit, if not all do",
            group=MEMORY,
        ),
    ] = None
    cpu_moe: Annotated[
        bool,
        Option("-cmoe --cpu-moe --cmoe", "Keep all experts off the GPU.", group=MEMORY),
    ] = False
    num_cpu_moe: Annotated[
        int,
        Option(
            "-ncmoe --n-cpu-moe --ncmoe",
            "Keep the experts of the first N layers off the GPU.",
            "N",
            min=0,
            group=MEMORY,
        ),
    ] = 0
    num_parallel: int = 1  # sequences that are computed at once, at most
    disabled: Annotated[
        tuple[Feature, ...],
        Option(
            "--disable",
            f"Switch off a part of the program: {', '.join(FEATURES)}. Several are"
            " separated by commas. `sharpi doctor` explains them.",
            "FEATURE",
            parse=lambda text: features_of(text, FEATURES),
            is_repeated=True,
            group=FAULTS,
        ),
    ] = ()
    prompt_cache: Annotated[
        Path | None,
        Option(
            "--prompt-cache",
            "Keep computed prompts in the folder DIR and reuse them, also after a restart.",
            "DIR",
            group=CONTEXT,
        ),
    ] = None
    prompt_cache_bytes: Annotated[
        int,
        Option(
            "--prompt-cache-size",
            "Maximum size of that folder; the least recently used goes first.",
            "SIZE",
            parse=memory,
            shown_default="16GiB",
            group=CONTEXT,
        ),
    ] = 16 << 30
    trace_vram: Annotated[
        bool,
        Option(
            "--trace-vram",
            "Print each allocation on the GPU, and the free memory, to stderr.",
            group=FAULTS,
        ),
    ] = False
    experts: ExpertConfig = field(default_factory=ExpertConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    cluster: ClusterConfig | None = None  # None for this machine alone
