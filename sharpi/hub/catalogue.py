"""Well-known models with short names, as `sharpi models` lists them; no network is needed.

The owners of the repositories may rename files, so `sharpi pull` reads the current list of files.
Parameter counts are those that the models' authors publish; file sizes are computed from them.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from sharpi.hub.model_name import ModelName

# Average bits per weight of whole files.
BITS = {"Q4_K_M": 4.85, "Q5_K_M": 5.7, "Q6_K": 6.6, "Q8_0": 8.5, "MXFP4": 4.5}
_USUAL = ("Q4_K_M", "Q6_K", "Q8_0")


class CatalogueEntry(Struct, frozen=True):
    """A model with a short name, and the sizes from which `sharpi plan` estimates its memory."""

    name: str  # FAMILY:SIZE
    title: str
    repository: str
    parameters: float  # in billions
    active: float  # parameters that one token uses, in billions
    num_layers: int
    hidden_size: int
    vocabulary: int
    kv_width: int  # numbers per token and layer in the KV cache
    num_experts: int = 0
    num_used: int = 0
    quants: tuple[str, ...] = _USUAL

    @property
    def quant(self) -> str:
        """The quant that is meant by the short name without a quant."""
        return self.quants[0]

    def file_bytes(self, quant: str) -> int:
        """Returns the approximate size in bytes of the model's file with a quant."""
        return int(self.parameters * 1e9 * BITS[quant] / 8)

    def model_name(self, quant: str | None = None) -> ModelName:
        """Returns the model's name on the hub, with the default quant if `quant` is None."""
        return ModelName(self.repository, quant or self.quant)


def approximate_bytes(name: ModelName) -> int | None:
    """Returns the approximate size of a model's file; None for models that are not listed here."""
    for entry in CATALOGUE:
        quant = (name.quant or entry.quant).upper()
        if entry.repository == name.repository and quant in BITS:
            return entry.file_bytes(quant)
    return None


def find_entry(text: str) -> tuple[CatalogueEntry, str] | None:
    """Returns the model and quant of a short name such as `qwen3:30b` or `qwen3:30b:Q8_0`.

    Returns None if no model has this name.
    """
    word = text.lower()
    for entry in CATALOGUE:
        if word == entry.name:
            return entry, entry.quant
        for quant in entry.quants:
            if word == f"{entry.name}:{quant.lower()}":
                return entry, quant
    return None


def entries_like(word: str) -> Sequence[CatalogueEntry]:
    """Returns the models whose short name, title or repository contains a word, in any case."""
    wanted = word.lower()
    return [
        each
        for each in CATALOGUE
        if any(wanted in text.lower() for text in (each.name, each.title, each.repository))
    ]


def short_names() -> Iterable[str]:
    """Returns the short names of all models in the catalogue."""
    return (entry.name for entry in CATALOGUE)


def short_names_of(names: Iterable[ModelName]) -> list[str]:
    """Returns the short names of those models in `names` that are in the catalogue."""
    known = {str(name).lower() for name in names}
    every = ((each, quant) for each in CATALOGUE for quant in each.quants)
    return [
        each.name if quant == each.quant else f"{each.name}:{quant.lower()}"
        for each, quant in every
        if str(each.model_name(quant)).lower() in known
    ]


_QWEN = 151_936

CATALOGUE = (
    CatalogueEntry(
        "qwen3:0.6b",
        "Qwen3 0.6B",
        "Qwen/Qwen3-0.6B-GGUF",
        0.6,
        0.6,
        28,
        1024,
        _QWEN,
        2048,
        quants=("Q8_0",),
    ),
    CatalogueEntry(
        "qwen3:1.7b",
        "Qwen3 1.7B",
        "Qwen/Qwen3-1.7B-GGUF",
        1.7,
        1.7,
        28,
        2048,
        _QWEN,
        2048,
        quants=("Q8_0",),
    ),
    CatalogueEntry(
        "qwen3:4b",
        "Qwen3 4B",
        "Qwen/Qwen3-4B-GGUF",
        4.0,
        4.0,
        36,
        2560,
        _QWEN,
        2048,
    ),
    CatalogueEntry(
        "qwen3:8b",
        "Qwen3 8B",
        "Qwen/Qwen3-8B-GGUF",
        8.2,
        8.2,
        36,
        4096,
        _QWEN,
        2048,
    ),
    CatalogueEntry(
        "qwen3:14b",
        "Qwen3 14B",
        "Qwen/Qwen3-14B-GGUF",
        14.8,
        14.8,
        40,
        5120,
        _QWEN,
        2048,
    ),
    CatalogueEntry(
        "qwen3:30b",
        "Qwen3 30B-A3B",
        "Qwen/Qwen3-30B-A3B-GGUF",
        30.5,
        3.3,
        48,
        2048,
        _QWEN,
        1024,
        128,
        8,
    ),
    CatalogueEntry(
        "qwen3:32b",
        "Qwen3 32B",
        "Qwen/Qwen3-32B-GGUF",
        32.8,
        32.8,
        64,
        5120,
        _QWEN,
        2048,
    ),
    CatalogueEntry(
        "qwen3:235b",
        "Qwen3 235B-A22B",
        "Qwen/Qwen3-235B-A22B-GGUF",
        235.0,
        22.0,
        94,
        4096,
        _QWEN,
        1024,
        128,
        8,
    ),
    CatalogueEntry(
        "qwen3-coder:30b",
        "Qwen3 Coder 30B-A3B Instruct",
        "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF",
        30.5,
        3.3,
        48,
        2048,
        _QWEN,
        1024,
        128,
        8,
    ),
    CatalogueEntry(
        "gpt-oss:20b",
        "gpt-oss 20B",
        "ggml-org/gpt-oss-20b-GGUF",
        20.9,
        3.6,
        24,
        2880,
        201_088,
        1024,
        32,
        4,
        quants=("MXFP4",),
    ),
    CatalogueEntry(
        "gpt-oss:120b",
        "gpt-oss 120B",
        "ggml-org/gpt-oss-120b-GGUF",
        116.8,
        5.1,
        36,
        2880,
        201_088,
        1024,
        128,
        4,
        quants=("MXFP4",),
    ),
    CatalogueEntry(
        "olmoe:7b",
        "OLMoE 1B-7B Instruct",
        "allenai/OLMoE-1B-7B-0924-Instruct-GGUF",
        6.9,
        1.3,
        16,
        2048,
        50_304,
        4096,
        64,
        8,
    ),
    CatalogueEntry(
        "mixtral:8x7b",
        "Mixtral 8x7B Instruct",
        "TheBloke/Mixtral-8x7B-Instruct-v0.1-GGUF",
        46.7,
        12.9,
        32,
        4096,
        32_000,
        2048,
        8,
        2,
    ),
    CatalogueEntry(
        "glm-4.5-air:106b",
        "GLM-4.5 Air",
        "unsloth/GLM-4.5-Air-GGUF",
        106.0,
        12.0,
        46,
        4096,
        151_552,
        2048,
        128,
        8,
    ),
    CatalogueEntry(
        "llama4:scout",
        "Llama 4 Scout 17B-16E",
        "unsloth/Llama-4-Scout-17B-16E-Instruct-GGUF",
        109.0,
        17.0,
        48,
        5120,
        202_048,
        2048,
        16,
        1,
    ),
    CatalogueEntry(
        "deepseek-r1:671b",
        "DeepSeek R1",
        "unsloth/DeepSeek-R1-GGUF",
        671.0,
        37.0,
        61,
        7168,
        129_280,
        576,
        256,
        8,
    ),
)
