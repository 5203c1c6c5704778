"""The expected effect of each option of `run`, as a flag and as a variable, and refused values."""

from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """One option; `path` names the field that it sets in config, experts, request or sampling."""

    variable: str
    flag: list[str]
    from_flag: Any
    text: str
    from_variable: Any
    path: str
    malformed: tuple[str, ...] = ()


CASES = [
    Case("SHARPI_THREADS", ["-t", "3"], 3, "4", 4, "config.num_threads", ("0", "x", "9999", "1.5")),
    Case("SHARPI_THREADS_BATCH", ["-tb", "3"], 3, "4", 4, "config.num_batch_threads", ("-1", "x")),
    Case("SHARPI_BATCH_SIZE", ["-b", "32"], 32, "64", 64, "config.batch_size", ("0", "many")),
    Case(
        "SHARPI_PRECISION",
        ["--precision", "int8"],
        "int8",
        "f32",
        "f32",
        "config.precision",
        ("f16",),
    ),
    Case(
        "SHARPI_KV_TYPE", ["--kv-type", "q8_0"], "q8_0", "f16", "f16", "config.kv_type", ("q4_k",)
    ),
    Case(
        "SHARPI_CACHE_TYPE_K", ["-ctk", "q5_1"], "q5_1", "f16", "f16", "config.key_type", ("f32",)
    ),
    Case(
        "SHARPI_CACHE_TYPE_V",
        ["-ctv", "q4_0"],
        "q4_0",
        "iq4_nl",
        "iq4_nl",
        "config.value_type",
        ("int4",),
    ),
    Case(
        "SHARPI_ISA",
        ["--isa", "avx2"],
        "avx2",
        "portable",
        "portable",
        "config.instruction_set",
        ("sse",),
    ),
    Case(
        "SHARPI_CTX_SIZE",
        ["-c", "99"],
        99,
        "77",
        77,
        "config.context_size",
        ("-5", "0", "4k", str(2**40)),
    ),
    Case(
        "SHARPI_CONTEXT_SHIFT",
        ["--no-context-shift"],
        False,
        "on",
        True,
        "config.context_shift",
        ("maybe",),
    ),
    Case(
        "SHARPI_PROMPT_CACHE",
        ["--prompt-cache", "kept"],
        Path("kept"),
        "other",
        Path("other"),
        "config.prompt_cache",
    ),
    Case(
        "SHARPI_PROMPT_CACHE_SIZE",
        ["--prompt-cache-size", "2GiB"],
        2 << 30,
        "3GiB",
        3 << 30,
        "config.prompt_cache_bytes",
        ("-1", "many", "3"),
    ),
    Case("SHARPI_PREDICT", ["-n", "5"], 5, "6", 6, "request.max_tokens", ("-2", "x")),
    Case("SHARPI_STOP", ["--stop", "x y"], ("x y",), "a b,c", ("a b", "c"), "request.stop"),
    Case("SHARPI_IGNORE_EOS", ["--ignore-eos"], True, "yes", True, "request.ignore_end", ("2",)),
    Case(
        "SHARPI_TEMP",
        ["--temp", "0"],
        0.0,
        "1.5",
        1.5,
        "sampling.temperature",
        ("-1", "nan", "hot", "inf"),
    ),
    Case("SHARPI_TOP_K", ["--top-k", "7"], 7, "8", 8, "sampling.top_k", ("-1", "x")),
    Case(
        "SHARPI_TOP_P",
        ["--top-p", "0.5"],
        0.5,
        "0.25",
        0.25,
        "sampling.top_p",
        ("1.1", "-0.1", "nan"),
    ),
    Case("SHARPI_MIN_P", ["--min-p", "0.5"], 0.5, "0.25", 0.25, "sampling.min_p", ("1.1", "x")),
    Case(
        "SHARPI_REPEAT_PENALTY",
        ["--repeat-penalty", "1.1"],
        1.1,
        "1.3",
        1.3,
        "sampling.repeat_penalty",
        ("0", "-1", "inf"),
    ),
    Case(
        "SHARPI_REPEAT_PENALTY",
        ["--rep-penalty", "1.1"],
        1.1,
        "1.3",
        1.3,
        "sampling.repeat_penalty",
    ),
    Case(
        "SHARPI_REPEAT_LAST_N",
        ["--repeat-last-n", "-1"],
        -1,
        "32",
        32,
        "sampling.penalty_last_n",
        ("-2",),
    ),
    Case(
        "SHARPI_PRESENCE_PENALTY",
        ["--presence-penalty", "-1"],
        -1.0,
        "0.5",
        0.5,
        "sampling.presence_penalty",
        ("inf", "x"),
    ),
    Case(
        "SHARPI_FREQUENCY_PENALTY",
        ["--frequency-penalty", "1"],
        1.0,
        "0.5",
        0.5,
        "sampling.frequency_penalty",
        ("nan",),
    ),
    Case("SHARPI_SEED", ["-s", "42"], 42, "43", 43, "sampling.seed", ("-2", "x", str(2**40))),
    Case(
        "SHARPI_SPEC_TYPE",
        ["--spec-type", "auto"],
        ("ngram", "suffix"),
        "ngram",
        ("ngram",),
        "speculation.kinds",
        ("eagle", "none,ngram", ","),
    ),
    Case(
        "SHARPI_SPEC_DRAFT_N_MAX",
        ["--spec-draft-n-max", "4"],
        4,
        "2",
        2,
        "speculation.max_drafts",
        ("-1", "99", "x"),
    ),
    Case(
        "SHARPI_SPEC_DRAFT_N_MIN",
        ["--spec-draft-n-min", "4"],
        4,
        "2",
        2,
        "speculation.min_drafts",
        ("-1", "99", "x"),
    ),
    Case(
        "SHARPI_SPEC_DRAFT_P_MIN",
        ["--spec-draft-p-min", "0.5"],
        0.5,
        "0.75",
        0.75,
        "speculation.min_probability",
        ("-1", "1.5", "nan"),
    ),
    Case(
        "SHARPI_SPEC_DRAFT_MODEL",
        ["--spec-draft-model", "small.gguf"],
        Path("small.gguf"),
        "other.gguf",
        Path("other.gguf"),
        "speculation.draft_model",
    ),
]
