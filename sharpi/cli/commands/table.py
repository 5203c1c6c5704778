"""The commands: section, summary and examples of each, so that help imports none of them."""

from functools import cache
from importlib import import_module

from msgspec import Struct

from sharpi.cli.command import Command, Function, build_command
from sharpi.cli.termination import exiting_on_ctrl_c


class Entry(Struct, frozen=True):
    """What the program's help says of a command, and where its function is."""

    section: str
    function: str  # its module in this package, and its name
    summary: str  # the first line of the function's docstring
    examples: tuple[str, ...]


PROGRAM_EXAMPLES = (
    "sharpi run",
    "sharpi models",
    "sharpi pull qwen3:30b",
    "sharpi chat qwen3:30b",
)

COMMANDS: dict[str, Entry] = {
    "run": Entry(
        "Talk",
        "run.run",
        "Answer one prompt.",
        (
            'sharpi run model.gguf "Why is the sky blue?"',
            'cat notes.txt | sharpi run model.gguf "Summarise this." -n 200',
            'sharpi run model.gguf "Name an animal." --json-schema animal.json',
        ),
    ),
    "chat": Entry(
        "Talk",
        "chat.chat",
        "Talk with a model.",
        (
            "sharpi chat model.gguf",
            'sharpi chat model.gguf --system "Answer in one sentence." --temp 0.3',
            "sharpi chat model.gguf -c 16384 --kv-type q8_0",
        ),
    ),
    "log": Entry(
        "Talk",
        "log.log",
        "List, show, search, export and remove kept conversations.",
        (
            "sharpi log list",
            "sharpi log search sky",
        ),
    ),
    "models": Entry(
        "Models",
        "known_models.models",
        "List well-known models and their speed here.",
        (
            "sharpi models",
            "sharpi models qwen3",
            "sharpi models --json",
        ),
    ),
    "pull": Entry(
        "Models",
        "cached_models.pull",
        "Download a model from the Hugging Face hub.",
        (
            "sharpi pull qwen3:30b",
            "sharpi pull Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M",
        ),
    ),
    "list": Entry(
        "Models",
        "cached_models.list_models",
        "List the models in the hub's cache.",
        (
            "sharpi list",
            "sharpi list --json",
        ),
    ),
    "rm": Entry(
        "Models",
        "cached_models.rm",
        "Remove a model from the hub's cache.",
        (
            "sharpi rm Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M",
            "sharpi rm Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M --yes",
        ),
    ),
    "cache": Entry(
        "Models",
        "cache.cache",
        "List and remove the prompts that --prompt-cache keeps on disk.",
        (
            "sharpi cache list --prompt-cache ~/.cache/sharpi-prompts",
            "sharpi cache rm --all --prompt-cache ~/.cache/sharpi-prompts",
        ),
    ),
    "inspect": Entry(
        "Models",
        "inspect.inspect",
        "Show what a GGUF file holds.",
        (
            "sharpi inspect model.gguf",
            "sharpi inspect model.gguf --check",
        ),
    ),
    "plan": Entry(
        "Models",
        "plan.plan",
        "Show where a model would live, and how fast it can be.",
        (
            "sharpi plan model.gguf",
            "sharpi plan model.gguf --ram 16GiB -c 32768",
            "sharpi plan model.gguf --vram 12GiB",
        ),
    ),
    "serve": Entry(
        "Serve",
        "serve.serve",
        "Serve a model to several OpenAI and Anthropic clients at once.",
        (
            "sharpi serve model.gguf",
            "sharpi serve model.gguf --port 9000 --parallel 8",
            "sharpi serve model.gguf --host 0.0.0.0 --api-key secret",
        ),
    ),
    "launch": Entry(
        "Serve",
        "launch.launch",
        "Start a coding agent on a model.",
        (
            "sharpi launch claude qwen3:30b",
            "sharpi launch aider model.gguf -- --no-auto-commits",
        ),
    ),
    "ps": Entry(
        "Serve",
        "ps.ps",
        "List the running servers and what each has loaded.",
        (
            "sharpi ps",
            "sharpi ps --json",
        ),
    ),
    "join": Entry(
        "Serve",
        "join.join",
        "Run some layers of a model for another machine.",
        (
            "sharpi join 10.0.0.1 model.gguf",
            "sharpi join 10.0.0.1:29500 model.gguf --once",
        ),
    ),
    "bench": Entry(
        "Measure",
        "bench.bench",
        "Measure prefill and decode speed.",
        (
            "sharpi bench model.gguf",
            "sharpi bench model.gguf -p 512,2048 -n 64 -r 3",
            "sharpi bench model.gguf -d 0,4096",
        ),
    ),
    "perplexity": Entry(
        "Measure",
        "given_tokens.perplexity",
        "Print the perplexity of a text.",
        (
            "sharpi perplexity model.gguf -f text.txt",
            "sharpi perplexity model.gguf -f text.txt -c 2048 --precision f32",
        ),
    ),
    "stats": Entry(
        "Measure",
        "simulate.stats",
        "Show how well the expert cache served a run.",
        (
            "sharpi run model.gguf Why --expert-stats stats.json",
            "sharpi stats stats.json --png heat.png",
        ),
    ),
    "simulate": Entry(
        "Measure",
        "simulate.simulate",
        "Replay a trace of routes through the slot policies.",
        (
            "sharpi run model.gguf Why --moe-trace trace.npz",
            "sharpi simulate trace.npz --slots 8,16,32",
            "sharpi simulate trace.npz --predictors",
        ),
    ),
    "tokenize": Entry(
        "Measure",
        "given_tokens.tokenize",
        "Print the ids of a text.",
        (
            'sharpi tokenize model.gguf "Once upon a time"',
            "sharpi tokenize model.gguf --json < text.txt",
        ),
    ),
    "logits": Entry(
        "Measure",
        "given_tokens.logits",
        "Write the logits of given token ids.",
        ("sharpi logits model.gguf --tokens ids.npy --output logits.npy",),
    ),
    "doctor": Entry(
        "Measure",
        "doctor.doctor",
        "Show the machine's hardware and what is missing.",
        (
            "sharpi doctor",
            "sharpi doctor /mnt/models",
        ),
    ),
    "version": Entry(
        "Help",
        "version.version",
        "Print the version and the CPU kernels in use.",
        ("sharpi version",),
    ),
}


@cache
def load_command(name: str) -> Command:
    """Imports and returns the command `name`."""
    entry = COMMANDS[name]
    with exiting_on_ctrl_c():
        return build_command(name, function_of(entry), entry.examples)


def function_of(entry: Entry) -> Function:
    """Imports and returns the function of a command."""
    module, _, name = entry.function.partition(".")
    function: Function = getattr(import_module(f"sharpi.cli.commands.{module}"), name)
    return function
