"""What transformers' heads for multi-token prediction answer, stored for the tests of sharpi's.

Needs the environment of `make references`, so no test runs it:

    .references-venv/bin/python tests/references/transformers_heads.py

transformers 5.23 runs such heads (`MtpModel`) where a configuration has `num_mtp_layers`: those of
GLM-4.5 and DeepSeek V3. The head has the weights that `with_head.py` adds to the reference's file.
`heads/transformers.npz` holds for each case the head's logits (tokens - 1, vocabulary).
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from cases import CASES, Case
from gguf import GGUFReader
from numpy.typing import NDArray
from tiny_models import make_reference
from transformers.cache_utils import DynamicCache
from transformers.modeling_layers import MtpModel
from with_head import with_head

DATA = Path(__file__).parent / "data"
HEADS = DATA.parent / "heads"
NAMES = ("glm4moe", "deepseek3")
# The parts of transformers' head, and their names in a GGUF.
PARTS = {
    "enorm": "enorm",
    "hnorm": "hnorm",
    "eh_proj": "eh_proj",
    "post_norm": "shared_head_norm",
}


def main() -> None:
    """Writes `heads/transformers.npz`."""
    found = {case.name: head_logits(case) for case in CASES if case.name in NAMES}
    np.savez_compressed(HEADS / "transformers.npz", **found)
    for case, logits in found.items():
        print(f"{case}: std {logits.std():.2f}")


def head_logits(case: Case) -> NDArray[np.float32]:
    """Returns the logits (tokens - 1, vocabulary) of the head of one case."""
    reference = make_reference(case)
    model = reference.model
    model.config.num_mtp_layers = 1
    head = MtpModel(model, 1).to(torch.float32).eval()
    head.config._attn_implementation = "eager"
    layer = head.layers[0]
    layer.mtp_block.load_state_dict(model.get_decoder().layers[-1].state_dict())
    for part, values in _added(case.name).items():
        getattr(layer, part).weight.data = torch.from_numpy(values)
    ids = torch.from_numpy(reference.tokens.astype(np.int64))[None]
    positions = torch.arange(1, ids.shape[1])[None]
    with torch.no_grad():
        hidden = model.get_decoder()(ids, use_cache=False).last_hidden_state
        out = head.forward_layer(
            0, hidden[:, :-1], positions, DynamicCache(config=head.config), input_ids=ids[:, 1:]
        )
        return np.asarray(head._project_to_logits(out)[0].numpy(), np.float32)


def _added(case: str) -> dict[str, NDArray[np.float32]]:
    """Returns the tensors that `with_head` adds to a case's file, by transformers' names."""
    with tempfile.TemporaryDirectory() as name:
        reader = GGUFReader(with_head(DATA / f"{case}.gguf", Path(name) / "headed.gguf"))
        tensors = {tensor.name.split("nextn.")[-1]: tensor for tensor in reader.tensors}
        return {
            part: np.array(tensors[f"{own}.weight"].data).astype(np.float32)
            for part, own in PARTS.items()
        }


if __name__ == "__main__":
    main()
