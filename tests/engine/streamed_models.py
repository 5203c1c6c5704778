"""Models whose experts have few slots, and their answers, for the tests of slots."""

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from msgspec.structs import replace
from requantise import copy_metadata, write

from sharpi.engine.engine import Engine, Session
from sharpi.settings import ExpertConfig, GenerationRequest, SamplingParams

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "models" / "demo" / "stories-moe.gguf"
REFERENCES = ROOT / "tests" / "references" / "data"
NUM_EXPERTS, NUM_USED, NUM_LAYERS = 16, 2, 6  # of the demo model
PROMPT = np.random.default_rng(0).integers(3, 1000, 40).tolist()
STORY = "Once upon a time, there was a little girl who had a red ball. One day"
GREEDY = GenerationRequest(max_tokens=24, ignore_end=True, sampling=SamplingParams(temperature=0))


def asked(**fields: object) -> ExpertConfig:
    """Returns the options of a run about its slots."""
    return ExpertConfig(**fields)  # type: ignore[arg-type]


def decode(
    engine: Engine | Session, prompt: list[int] | None = None, max_tokens: int = 24
) -> list[int]:
    """Returns the greedy continuation of a prompt, past the end of the text."""
    session = engine.session() if isinstance(engine, Engine) else engine
    request = replace(GREEDY, max_tokens=max_tokens)
    generation = session.generate(PROMPT if prompt is None else prompt, request)
    for _ in generation:
        pass
    return generation.ids


def story_ids(engine: Engine, text: str = STORY) -> list[int]:
    """Returns a prompt of the kind that the demo model was trained on."""
    return engine.tokenizer.encode(text, add_bos=True, parse_special=False)


def write_mixed_model(target: Path) -> Path:
    """Writes a tiny model whose first layer is dense, and whose experts have biases."""
    reader = GGUFReader(REFERENCES / "qwen3moe.gguf")
    writer = GGUFWriter(target, "qwen3moe")
    copy_metadata(reader, writer)
    random = np.random.default_rng(1)
    for tensor in reader.tensors:
        data, name = np.array(tensor.data), tensor.name
        if name == "blk.0.ffn_gate_inp.weight":
            continue
        if name.startswith("blk.0.ffn_") and "_exps" in name:
            data, name = data[0], name.replace("_exps", "")
        writer.add_tensor(name, data, raw_dtype=tensor.tensor_type)
        if "_exps.weight" in name:
            bias = random.normal(0, 0.1, data.shape[:2]).astype(np.float32)
            writer.add_tensor(name.replace(".weight", ".bias"), bias)
    write(writer)
    return target
