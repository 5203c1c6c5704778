"""The bound on the engine's buffers against the memory of its recorded programs."""

from pathlib import Path

import pytest

from sharpi.config import RunConfig
from sharpi.engine.loader import load_engine
from sharpi.ops.cpu.program import Program
from sharpi.resources import demo_model
from sharpi.tiers.scratch import read_widths, scratch_bytes

pytestmark = pytest.mark.native
MODELS = [
    *sorted((Path(__file__).parents[1] / "references" / "data").glob("*.gguf")),
    demo_model(),
]
MIB = 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    ("batch_size", "precision", "context_size"), [(1, "int8", 64), (512, "int16", 2000)]
)
@pytest.mark.parametrize("num_outputs", [1, 64])
def test_bound_holds_and_is_near(
    model: Path, batch_size: int, precision: str, context_size: int, num_outputs: int
) -> None:
    config = RunConfig(
        model=model,
        batch_size=batch_size,
        precision=precision,  # type: ignore[arg-type]
        context_size=context_size,
    )
    with load_engine(config) as engine:
        settings = engine.runner.settings
        program: Program = engine.runner.parts[0]._program(num_outputs)
        bound = scratch_bytes(
            read_widths(engine.file, engine.model_config),
            batch_size=settings.batch_size,
            num_positions=settings.context_size,
            rounding=settings.rounding,
            num_threads=0,  # the program's figure leaves out the threads' tiles
            num_outputs=num_outputs,
        )
    assert program.num_bytes <= bound <= 2 * program.num_bytes + 8 * MIB
