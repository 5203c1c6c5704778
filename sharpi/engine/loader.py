"""Loads a model: the one place that connects file, tokenizer, weights and engine."""

from collections.abc import Callable

from sharpi.config import RunConfig
from sharpi.engine.engine import Engine
from sharpi.engine.runner import Runner
from sharpi.engine.settings import decide
from sharpi.gguf.fault import file_fault
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.hardware import probe_hardware
from sharpi.model.config import read_config
from sharpi.model.weights import ModelWeights, load_weights
from sharpi.tokenizer.chat_template import chat_format
from sharpi.tokenizer.tokenizer import Tokenizer, load_tokenizer

Progress = Callable[[str, float], None]


def load_engine(config: RunConfig, on_progress: Progress | None = None) -> Engine:
    """An engine ready to answer; raises SharpiError before anything large is allocated."""
    report = on_progress or (lambda stage, fraction: None)
    report("reading the file", 0.0)
    file = open_gguf(config.model)
    try:
        return _load(file, config, report)
    except BaseException:
        file.close()
        raise


def _load(file: GgufFile, config: RunConfig, report: Progress) -> Engine:
    model_config = read_config(file)
    settings = decide(config, file, model_config, probe_hardware(config.instruction_set))
    weights = load_weights(file, model_config)
    report("building the tokenizer", 0.3)
    tokenizer = load_tokenizer(file.metadata)
    _refuse_tokens_without_row(file, tokenizer, weights)
    report("preparing the engine", 0.8)
    runner = Runner(model_config, weights, settings)
    report("ready", 1.0)
    return Engine(
        config=config,
        model_config=model_config,
        file=file,
        tokenizer=tokenizer,
        chat_format=chat_format(tokenizer),
        runner=runner,
        notes=(*tokenizer.notes, *_unused_note(weights), *settings.notes),
    )


def _refuse_tokens_without_row(file: GgufFile, tokenizer: Tokenizer, weights: ModelWeights) -> None:
    """The kernels look ids up unchecked. Rows without a token are usual: they fill the matrix."""
    rows = weights.output.rows
    if tokenizer.vocab_size > rows:
        raise file_fault(
            file.path, f"corrupt: {tokenizer.vocab_size} tokens, but embeddings for only {rows}"
        )


def _unused_note(weights: ModelWeights) -> tuple[str, ...]:
    if not weights.unused:
        return ()
    shown = ", ".join(weights.unused[:4]) + (", ..." if len(weights.unused) > 4 else "")
    return (f"{len(weights.unused)} tensors are not used by this architecture: {shown}",)
