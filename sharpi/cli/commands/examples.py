"""Examples of each command, which its help and its man page show; tests parse every one."""

PROGRAM = (
    "sharpi run",
    "sharpi models",
    "sharpi pull qwen3:30b",
    "sharpi chat qwen3:30b",
)

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        'sharpi run model.gguf "Why is the sky blue?"',
        'cat notes.txt | sharpi run model.gguf "Summarise this." -n 200',
        'sharpi run model.gguf "Name an animal." --json-schema animal.json',
    ),
    "chat": (
        "sharpi chat model.gguf",
        'sharpi chat model.gguf --system "Answer in one sentence." --temp 0.3',
        "sharpi chat model.gguf -c 16384 --kv-type q8_0",
    ),
    "log": (
        "sharpi log list",
        "sharpi log search sky",
    ),
    "join": ("sharpi join 10.0.0.1 model.gguf", "sharpi join 10.0.0.1:29500 model.gguf --once"),
    "models": ("sharpi models", "sharpi models qwen3", "sharpi models --json"),
    "pull": (
        "sharpi pull qwen3:30b",
        "sharpi pull Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M",
    ),
    "list": ("sharpi list", "sharpi list --json"),
    "rm": (
        "sharpi rm Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M",
        "sharpi rm Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M --yes",
    ),
    "cache": (
        "sharpi cache list --prompt-cache ~/.cache/sharpi-prompts",
        "sharpi cache rm --all --prompt-cache ~/.cache/sharpi-prompts",
    ),
    "inspect": ("sharpi inspect model.gguf", "sharpi inspect model.gguf --check"),
    "plan": (
        "sharpi plan model.gguf",
        "sharpi plan model.gguf --ram 16GiB -c 32768",
        "sharpi plan model.gguf --vram 12GiB",
    ),
    "serve": (
        "sharpi serve model.gguf",
        "sharpi serve model.gguf --port 9000 --parallel 8",
        "sharpi serve model.gguf --host 0.0.0.0 --api-key secret",
    ),
    "launch": (
        "sharpi launch claude qwen3:30b",
        "sharpi launch aider model.gguf -- --no-auto-commits",
    ),
    "ps": ("sharpi ps", "sharpi ps --json"),
    "bench": (
        "sharpi bench model.gguf",
        "sharpi bench model.gguf -p 512,2048 -n 64 -r 3",
        "sharpi bench model.gguf -d 0,4096",
    ),
    "perplexity": (
        "sharpi perplexity model.gguf -f text.txt",
        "sharpi perplexity model.gguf -f text.txt -c 2048 --precision f32",
    ),
    "stats": (
        "sharpi run model.gguf Why --expert-stats stats.json",
        "sharpi stats stats.json --png heat.png",
    ),
    "simulate": (
        "sharpi run model.gguf Why --moe-trace trace.npz",
        "sharpi simulate trace.npz --slots 8,16,32",
        "sharpi simulate trace.npz --predictors",
    ),
    "tokenize": (
        'sharpi tokenize model.gguf "Once upon a time"',
        "sharpi tokenize model.gguf --json < text.txt",
    ),
    "logits": ("sharpi logits model.gguf --tokens ids.npy --output logits.npy",),
    "doctor": ("sharpi doctor", "sharpi doctor /mnt/models"),
    "help": ("sharpi help", "sharpi help run"),
    "completion": (
        'eval "$(sharpi completion bash)"',
        "sharpi completion fish > ~/.config/fish/completions/sharpi.fish",
    ),
    "man": (
        "sharpi man run | man -l -",
        "sharpi man --folder ~/.local/share/man/man1",
    ),
    "version": ("sharpi version",),
}
