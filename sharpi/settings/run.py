"""RunConfig: the settings for loading and running a model, as the user gave them.

Only the command line makes these values; no later code changes them or fills in missing ones.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Struct, field

from sharpi.settings.cluster import ClusterConfig
from sharpi.settings.experts import ExpertConfig
from sharpi.settings.option import Option, choice, positive
from sharpi.settings.placement import device_of, layers_of, memory, shares_of, vram_of
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
_context, _machine = partial(Option, group=CONTEXT), partial(Option, group=MACHINE)
_memory, _fault = partial(Option, group=MEMORY), partial(Option, group=FAULTS)
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


def features_of(text: str) -> tuple[str, ...]:
    """Returns names of features, separated by commas or blanks; raises ValueError."""
    return tuple(choice(name, tuple(FEATURES)) for name in text.replace(",", " ").split())


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
        Option("--rope-scaling", "How positions are scaled.", default="the file's, else linear"),
    ] = None
    factor: Annotated[
        float | None,
        Option("--rope-scale N", "How much context grows.", parse=positive, default="the file's"),
    ] = None
    original_context: Annotated[
        int | None,
        Option("--yarn-orig-ctx N", "YaRN: the trained context.", min=1, default="the file's"),
    ] = None
    extrapolation: Annotated[
        float | None,
        Option(
            "--yarn-ext-factor N",
            "YaRN: how much fast dimensions keep their frequency, 0 for not at all.",
            min=0,
            max=1,
            default="1",
        ),
    ] = None
    attention_factor: Annotated[
        float | None,
        Option("--yarn-attn-factor N", "YaRN: scales attention.", parse=positive, default="1"),
    ] = None
    beta_fast: Annotated[
        float | None,
        Option(
            "--yarn-beta-fast N",
            "YaRN: keep frequencies of at least N rotations in the trained context.",
            parse=positive,
            default="32",
        ),
    ] = None
    beta_slow: Annotated[
        float | None,
        Option(
            "--yarn-beta-slow N",
            "YaRN: divide frequencies of at most N rotations in the trained context.",
            parse=positive,
            default="1",
        ),
    ] = None


class RunConfig(Struct, frozen=True):
    """The parameters for loading and running a model."""

    model: Path = Path()
    context_size: Annotated[
        int | None,
        _context("-c --ctx-size N", "Context size.", min=1, default="the model's, at most 4096"),
    ] = None
    num_threads: Annotated[
        int | None,
        _machine("-t --threads N", "Decode threads.", min=1, max=1024, default="physical cores"),
    ] = None
    num_batch_threads: Annotated[
        int | None,
        _machine("-tb --threads-batch N", "Prefill threads.", min=1, max=1024, default="--threads"),
    ] = None
    batch_size: Annotated[int, _machine("-b --batch-size N", "Tokens per prefill step.", min=1)] = (
        512
    )
    precision: Annotated[
        Precision,
        _machine(
            "--precision",
            "Precision of activations. auto: int16 for small models, int8 for others; f32 is "
            "for comparison with other programs.",
        ),
    ] = "auto"
    kv_type: Annotated[
        KvType | None,
        _machine(
            "--kv-type",
            "Type of keys and values in the KV cache. All but f16 are rotated and lose a little: "
            "see docs/kv-cache.md.",
            default="f16, or q8_0 where f16 has no room",
        ),
    ] = None
    key_type: Annotated[
        KvType | None, _machine("-ctk --cache-type-k", "Type of keys alone.", default="--kv-type")
    ] = None
    value_type: Annotated[
        KvType | None, _machine("-ctv --cache-type-v", "Type of values alone.", default="--kv-type")
    ] = None
    kv_keep: Annotated[
        int | None,
        _machine(
            "--kv-keep N",
            "Positions of a longer prompt that each head keeps: those that the prompt's last "
            "tokens use most. CPU only; see docs/kv-cache.md.",
            min=_LEAST_KEPT,
            default="all",
        ),
    ] = None
    rope: RopeRequest = RopeRequest()
    context_shift: Annotated[
        bool,
        _context("--context-shift/--no-context-shift", "Drop the older half of a full context."),
    ] = False
    instruction_set: Annotated[
        InstructionSet | None,
        _machine("--isa", "Instruction set of the CPU kernels.", default="the machine's best"),
    ] = None
    load: Annotated[
        Load,
        _memory(
            "--load",
            "map: weights are used from the mapped file; copy: they are read into huge pages; auto:"
            " those that a GPU reads from RAM are copied.",
        ),
    ] = "auto"
    ram: Annotated[  # bytes
        int | None,
        _memory(
            "--ram SIZE",
            "RAM for weights, KV cache and buffers, as in 12GiB or 2.5G.",
            parse=memory,
            default="what is free, less a margin",
        ),
    ] = None
    # Bytes of each GPU; where they differ, `vrams` has those of each, and `vram` the largest.
    vram: Annotated[
        int | None,
        _memory(
            "--vram SIZE",
            "Maximum GPU memory to use; 24GiB,16GiB for two GPUs.",
            parse=vram_of,
            default="what is free",
        ),
    ] = None
    vrams: tuple[int, ...] = ()
    device: Annotated[
        Device,
        _memory(
            "--device auto|cpu|cuda",
            "auto: a GPU if one is usable, else the CPU, and further GPUs where one does not hold "
            "the model; cuda:0,1 (or CUDA0,CUDA1): these, which divide the layers.",
            parse=device_of,
        ),
    ] = "auto"
    gpus: tuple[int, ...] = ()  # CUDA's indices; without any, as many as the model needs
    tensor_split: Annotated[
        tuple[float, ...],
        _memory(
            "-ts --tensor-split N,N",
            "Shares of the layers that the GPUs get, as in 3,1.",
            parse=shares_of,
            default="by memory and speed",
        ),
    ] = ()
    gpu_layers: Annotated[
        int | None,
        _memory(
            "-g --gpu-layers -ngl --n-gpu-layers --ngl N",
            "Maximum number of whole layers on the GPU; -1, auto or all: as many as fit.",
            parse=layers_of,
            default="as many as fit",
        ),
    ] = None
    moe_slots: Annotated[  # per layer, in the fastest tier that has slots
        int | None,
        _memory(
            "--moe-slots --moe-expert-cache-size N",
            "Slots for experts in each layer.",
            min=1,
            also="SHARPI_MOE_EXPERT_CACHE_SIZE",
            default="as many as fit, if not all do",
        ),
    ] = None
    cpu_moe: Annotated[bool, _memory("-cmoe --cpu-moe --cmoe", "Keep all experts off the GPU.")] = (
        False
    )
    num_cpu_moe: Annotated[
        int,
        _memory(
            "-ncmoe --n-cpu-moe --ncmoe N",
            "Keep the experts of the first N layers off the GPU.",
            min=0,
        ),
    ] = 0
    num_parallel: int = 1  # sequences that are computed at once, at most
    disabled: Annotated[
        tuple[Feature, ...],
        _fault(
            "--disable FEATURE",
            f"Switch off a part of the program: {', '.join(FEATURES)}. Several are"
            " separated by commas. `sharpi doctor` explains them.",
            parse=features_of,
            is_repeated=True,
        ),
    ] = ()
    prompt_cache: Annotated[
        Path | None,
        _context("--prompt-cache DIR", "Keep computed prompts in DIR, for later runs too."),
    ] = None
    prompt_cache_bytes: Annotated[
        int,
        _context(
            "--prompt-cache-size SIZE",
            "Maximum size of that folder; the least recently used goes first.",
            parse=memory,
            default="16GiB",
        ),
    ] = 16 << 30
    trace_vram: Annotated[
        bool,
        _fault("--trace-vram", "Print each allocation on the GPU, and the free memory, to stderr."),
    ] = False
    experts: ExpertConfig = field(default_factory=ExpertConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    cluster: ClusterConfig | None = None  # None for this machine alone
