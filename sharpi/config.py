"""What the user asked: the values of flags and their SHARPI_* variables, nothing derived.

The command line is the only author; nothing here is changed or filled in later.
"""

from pathlib import Path
from typing import Literal

from msgspec import Struct, field

Precision = Literal["auto", "int8", "int16", "f32"]
Device = Literal["auto", "cpu", "cuda"]
KvType = Literal["f16", "q8_0"]
Load = Literal["map", "copy"]
Resident = Literal["first-n", "frequency", "ids"]
Miss = Literal["auto", "cpu", "stream", "load"]


class SamplingParams(Struct, frozen=True):
    """How the next token is chosen; names and defaults are llama.cpp's.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 switch a filter off, penalties
    of 1 (repeat) or 0 (presence, frequency) do nothing. `penalty_last_n` counts back from the
    newest token, -1 is the whole context. `seed` None draws one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int | None = None


class ExpertConfig(Struct, frozen=True):
    """How slots for experts are used, and what is recorded of it; matters to MoE models only.

    `policy` and `predictor` None take the measured best; `load_budget` (expert loads a token) None
    is derived from the policy's default. `warm_pin` experts of each layer are pinned after
    `warm_pin_after` accesses; None lets sharpi decide, 0 is off. `resident` names a fixed set for
    the static policy, `resident_ids` its ids for "ids"; "frequency" counts `warmup_tokens` first.
    `miss` says what is done about experts that a GPU has not: "cpu" computes them beside it,
    "stream" reads them where they are, "load" copies them first, "auto" takes what is quickest.
    `capacity_factor` None gives a prompt's routed tokens all the room they can need on a GPU, else
    so many times tokens * experts per token. `paged_stash` keeps what long prompts carry from layer
    to layer in pages of `stash_page_tokens`: on the GPU for `stash_gpu_factor` times its tokens,
    then in page-locked RAM for `stash_cpu_factor` times as many.
    `stats`, `trace` and `profile` are files written when the engine closes; `trace_routes` prints
    every token's routes.
    """

    policy: str | None = None
    load_budget: float | None = None
    warm_pin: int | None = None
    warm_pin_after: int | None = None
    prefetch: bool = True
    predictor: str | None = None
    resident: Resident | None = None
    resident_ids: str | None = None
    warmup_tokens: int = 4096
    miss: Miss = "auto"
    capacity_factor: float | None = None
    paged_stash: bool = False
    stash_page_tokens: int = 64
    stash_gpu_factor: float = 1.1
    stash_cpu_factor: float = 0.0
    stats: Path | None = None
    trace: Path | None = None
    profile: Path | None = None
    trace_routes: bool = False


class RunConfig(Struct, frozen=True):
    """How a model is to be loaded and run.

    `context_size` None takes the smaller of the model's own and 4,096. `num_threads` None takes
    the physical cores; `num_batch_threads` None follows `num_threads`. `instruction_set` None takes
    the best the machine has. `precision` is that of activations: "auto" takes "int16" for small
    models, which rounding hurts most, and "int8" for the others. `kv_type` is that of keys and
    values in the cache.

    `load` "copy" reads all weights into memory of their own, in huge pages, rather than mapping the
    file. `ram` and `vram` are bytes for weights, KV cache and buffers; None takes what is free.
    `gpu_layers`: layers on the GPU at most. `moe_slots`: slots of experts per layer in the fastest
    tier that has some. `cpu_moe` keeps all experts off the GPU, `num_cpu_moe` those of the first
    so many layers. `experts`: what happens in the slots. `num_parallel`: sequences that are
    computed at once at most.
    """

    model: Path
    context_size: int | None = None
    num_threads: int | None = None
    num_batch_threads: int | None = None
    batch_size: int = 512
    precision: Precision = "auto"
    kv_type: KvType = "f16"
    context_shift: bool = False
    instruction_set: str | None = None
    load: Load = "map"
    ram: int | None = None
    vram: int | None = None
    device: Device = "auto"
    gpu_layers: int | None = None
    moe_slots: int | None = None
    cpu_moe: bool = False
    num_cpu_moe: int = 0
    num_parallel: int = 1
    experts: ExpertConfig = field(default_factory=ExpertConfig)


class GenerationRequest(Struct, frozen=True):
    """One continuation: tokens at most (-1: until the end), where to stop, how to sample.

    `logit_bias`: (token id, what is added to its logit before everything else). `num_logprobs`:
    how many of the best are reported with each token, None for no logprobs at all.
    `shows_special`: whether control tokens are part of the text, the end token excepted.
    """

    max_tokens: int = -1
    stop: tuple[str, ...] = ()
    ignore_end: bool = False
    sampling: SamplingParams = field(default_factory=SamplingParams)
    logit_bias: tuple[tuple[int, float], ...] = ()
    num_logprobs: int | None = None
    shows_special: bool = False
