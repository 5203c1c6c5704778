"""The arithmetic of keys and values: everything that their bits depend on."""

import os
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

from msgspec.structs import asdict

from sharpi import __version__
from sharpi.config import RunConfig
from sharpi.engine.prompt_cache.record import KEY_BYTES
from sharpi.model.config import ModelConfig
from sharpi.resources import kernels_folder, native_library
from sharpi.tiers.settings import EngineSettings

# Settings on which no bit depends: sizes, threads and what is told to the user.
_WITHOUT_EFFECT = (
    "context_size", "batch_size", "num_threads", "num_batch_threads", "notes", "kv_notes",
    "num_parallel", "num_kv_pages", "kv_keep", "window", "window_pages",
    "places",
)  # fmt: skip
_PACKAGES = ("model", "ops", "engine/backends", "device")  # whose code decides about the bits


def arithmetic_of(
    config: RunConfig, settings: EngineSettings, model: ModelConfig, gpu: str | None
) -> str:
    """Returns a name for the arithmetic of a loaded model; equal names mean equal bits.

    `gpu`: the GPUs' names and layers, see `GpuChoice.description`; None without a GPU.
    """
    fields = {k: v for k, v in asdict(settings).items() if k not in _WITHOUT_EFFECT}
    on_gpu = None if gpu is None else (gpu, config.batch_size, config.experts.miss)
    return repr((_code(), processor_name(), fields, model, on_gpu))


def key_of(digest: bytes, arithmetic: str) -> bytes:
    """Returns the key of a model's pages, from the digest of its file and the arithmetic."""
    return blake2b(digest + arithmetic.encode(), digest_size=KEY_BYTES).digest()


@cache
def _code() -> str:
    """Returns the version, and a digest of the code that computes keys and values."""
    digest = blake2b(digest_size=KEY_BYTES)
    for path in arithmetic_files():
        digest.update(path.name.encode() + path.read_bytes())
    return f"{__version__} {digest.hexdigest()}"


def arithmetic_files() -> Iterator[Path]:
    """Yields the files of code on which the bits of keys and values depend."""
    yield native_library()
    yield from sorted((kernels_folder() / "cuda").rglob("*.cu*"))
    package = Path(__file__).parents[2]
    for name in _PACKAGES:
        yield from sorted((package / name).rglob("*.py"))


@cache
def processor_name() -> str:
    """Returns the model name of the CPU, since approximate instructions differ between makers."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return os.uname().machine
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, os.uname().machine)
