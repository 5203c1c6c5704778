"""Weights that stay in the file where experts are read from disk: experts, and an embedding."""

from pathlib import Path

import pytest

from sharpi.cli.commands.models.plan import plan_for
from sharpi.config import RunConfig
from sharpi.engine.placement.copies import weight_copies
from sharpi.gguf.reader import open_gguf
from sharpi.gguf.tensor_summary import is_expert_matrix
from sharpi.model.config import read_config
from sharpi.tiers.plan import Purpose, Tier

REFERENCES = Path(__file__).parents[2] / "references" / "data"


@pytest.mark.parametrize(("name", "is_tied"), [("qwen3moe", False), ("granitemoe", True)])
def test_an_embedding_stays_unless_every_token_reads_it(name: str, is_tied: bool) -> None:
    config = RunConfig(model=REFERENCES / f"{name}.gguf", device="cpu", moe_slots=2)
    with open_gguf(config.model) as file:
        plan = plan_for(config, file)
        copies = weight_copies(file, config, read_config(file), plan)
        assert copies is not None
        stays = {name for name in file.tensors if name not in copies.tensors}
        experts = {name for name in file.tensors if is_expert_matrix(name)}
        embedding = file.tensors["token_embd.weight"].num_bytes
    assert stays == experts | (set() if is_tied else {"token_embd.weight"})
    assert plan.bytes_in(Tier.DISK, Purpose.DENSE_WEIGHTS) == (0 if is_tied else embedding)
