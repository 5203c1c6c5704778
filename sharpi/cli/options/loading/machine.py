"""The options for the CPU, the precision of activations and the type of the KV cache."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Struct

from sharpi.cli.options.option import count, option
from sharpi.config import KvType, Precision, RunConfig
from sharpi.ops.kv_keep import KEEP_WINDOW

InstructionSet = Literal[
    "avx512_vbmi", "avx512_vnni", "avx_vnni", "avx2", "sse41", "neon", "portable"
]

_RUN = RunConfig(model=Path())


class MachineOptions(Struct, frozen=True):
    """Options for threads, batch size, arithmetic precision and the type of the KV cache."""

    heading: ClassVar = "Machine"

    threads: Annotated[
        int | None,
        option(
            "-t --threads",
            "Threads for decode.",
            "N",
            min=1,
            max=1024,
            show_default="physical cores",
            is_everyday=True,
        ),
    ] = None
    threads_batch: Annotated[
        int | None,
        option(
            "-tb --threads-batch",
            "Threads for prefill.",
            "N",
            min=1,
            max=1024,
            show_default="same as --threads",
        ),
    ] = None
    batch_size: Annotated[
        int, option("-b --batch-size", "Tokens per prefill step.", "N", min=1, callback=count)
    ] = _RUN.batch_size
    precision: Annotated[
        Precision,
        option(
            "--precision",
            "Precision of activations. auto: int16 for small models, int8 for others; f32 is "
            "for comparison with other programs.",
        ),
    ] = _RUN.precision
    kv_type: Annotated[
        KvType | None,
        option(
            "--kv-type",
            "Type of keys and values in the KV cache. All but f16 are rotated and lose a little: "
            "see docs/kv-cache.md.",
            show_default="f16, or q8_0 where f16 has no room",
        ),
    ] = _RUN.kv_type
    cache_type_k: Annotated[
        KvType | None,
        option("-ctk --cache-type-k", "Type of keys alone.", show_default="--kv-type"),
    ] = _RUN.key_type
    cache_type_v: Annotated[
        KvType | None,
        option("-ctv --cache-type-v", "Type of values alone.", show_default="--kv-type"),
    ] = _RUN.value_type
    kv_keep: Annotated[
        int | None,
        option(
            "--kv-keep",
            "Positions of a longer prompt that each head keeps: those that the prompt's last "
            "tokens use most. CPU only; see docs/kv-cache.md.",
            "N",
            min=2 * KEEP_WINDOW,
            show_default="all",
        ),
    ] = _RUN.kv_keep
    isa: Annotated[
        InstructionSet | None,
        option("--isa", "Instruction set of the CPU kernels.", show_default="the machine's best"),
    ] = None

    def run_config(
        self, model: Path, *, context_size: int | None = None, context_shift: bool = False
    ) -> RunConfig:
        """Returns the engine's configuration with these options for one model file."""
        return RunConfig(
            model=model,
            context_size=context_size,
            num_threads=self.threads,
            num_batch_threads=self.threads_batch,
            batch_size=self.batch_size,
            precision=self.precision,
            kv_type=self.kv_type,
            key_type=self.cache_type_k,
            value_type=self.cache_type_v,
            kv_keep=self.kv_keep,
            context_shift=context_shift,
            instruction_set=self.isa,
        )
