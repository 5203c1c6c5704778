"""What llama.cpp's heads for multi-token prediction answer, stored for the tests of sharpi's.

Needs llama-cpp-python 0.3.36, so no test runs it:

    python tests/references/llama_cpp_heads.py

For each family of `CASES` a head is added to the reference's file (`with_head.py`), with weights in
F32, since llama.cpp rounds activations to F16 otherwise. `heads/llama_cpp.npz` holds for each case
the logits (tokens - 1, vocabulary) of the head after the tokens of the case's own reference. Its
hidden states are those of llama.cpp's model, the one at a position joined with the next token, as
llama.cpp's own driver has it (`common/speculative.cpp`).
"""

import ctypes
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from gguf.constants import GGMLQuantizationType
from llama_cpp import llama_cpp as api
from numpy.typing import NDArray
from requantise import requantise
from with_head import with_head

DATA = Path(__file__).parent / "data"
HEADS = DATA.parent / "heads"
CASES = (
    *("glm4moe", "deepseek3", "qwen3next", "qwen35", "qwen35moe"),
    *("nemotron_h_moe", "nemotron_h_moe-latent", "hy_v3", "glm4moe-groups"),
)
_DECODE = 1  # of enum llama_process_type
# Functions of src/llama-ext.h, which have C++ names.
_SET_HIDDEN = "_Z26llama_set_embeddings_nextnP13llama_contextbb"
_GET_HIDDEN = "_Z26llama_get_embeddings_nextnP13llama_context"


def main() -> None:
    """Writes `heads/llama_cpp.npz`."""
    api.llama_backend_init()
    found = {case: head_logits(case) for case in CASES}
    np.savez_compressed(HEADS / "llama_cpp.npz", **found)
    for case, logits in found.items():
        print(f"{case}: std {logits.std():.2f}")


def head_logits(case: str) -> NDArray[np.float32]:
    """Returns the logits (tokens - 1, vocabulary) of the head of one case."""
    ids = np.load(DATA / f"{case}.npz")["tokens"].astype(np.int32)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        headed = with_head(DATA / f"{case}.gguf", folder / "headed.gguf")
        exact = requantise(headed, folder / "f32.gguf", GGMLQuantizationType.F32)
        with loaded(exact) as model:
            hidden = model_hidden(model, ids)
            return run_head(model, ids[1:], hidden[:-1])


@contextmanager
def loaded(path: Path) -> Iterator[Any]:
    """Loads a model with its head."""
    settings = api.llama_model_default_params()
    settings.load_mtp = True
    settings.n_gpu_layers = 0
    model = api.llama_model_load_from_file(str(path).encode(), settings)
    if not model:
        raise SystemExit(f"llama.cpp does not load {path}")
    yield model
    api.llama_model_free(model)


@contextmanager
def context(model: Any, *, is_head: bool) -> Iterator[Any]:
    """Opens a context of the model, or of its head, with a KV cache in F32."""
    settings = api.llama_context_default_params()
    settings.n_ctx = settings.n_batch = settings.n_ubatch = 64
    settings.type_k = settings.type_v = llama_cpp.GGML_TYPE_F32
    settings.flash_attn_type = 0
    settings.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP if is_head else 0
    own = api.llama_init_from_model(model, settings)
    if not own:
        raise SystemExit("llama.cpp makes no context")
    _extension(_SET_HIDDEN, None, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool)(own, True, False)
    yield own
    api.llama_free(own)


def model_hidden(model: Any, ids: NDArray[np.int32]) -> NDArray[np.float32]:
    """Returns what the model hands on to its head, (tokens, hidden)."""
    width = api.llama_model_n_embd(model)
    with context(model, is_head=False) as own:
        _process(own, ids, None)
        get = _extension(_GET_HIDDEN, ctypes.POINTER(ctypes.c_float), ctypes.c_void_p)
        return np.ctypeslib.as_array(get(own), (len(ids), width)).copy()


def run_head(
    model: Any, ids: NDArray[np.int32], hidden: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Returns the head's logits (tokens, vocabulary) for tokens and the states before them."""
    vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    with context(model, is_head=True) as own:
        _process(own, ids, np.ascontiguousarray(hidden))
        logits = [
            np.ctypeslib.as_array(api.llama_get_logits_ith(own, i), (vocabulary,)).copy()
            for i in range(len(ids))
        ]
    return np.stack(logits).astype(np.float32)


def _process(own: Any, ids: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
    """Decodes tokens from position 0 on; those with hidden states from position 1 on.

    llama.cpp's own program for drafts gives the tokens these positions.
    """
    batch = api.llama_batch_ext_init(own)
    for i, token in enumerate(ids.tolist()):
        index = api.llama_batch_ext_add_token(batch, 0, token)
        position = api.llama_pos(i + (hidden is not None))
        api.llama_batch_ext_set_pos(batch, index, ctypes.byref(position))
        api.llama_batch_ext_set_output_logits(batch, index, True)
        if hidden is not None:
            row = hidden[i].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            state = api.llama_embd(row, 1, hidden.shape[1])
            if not api.llama_batch_ext_set_embd_token(batch, index, state):
                raise SystemExit("llama.cpp takes no hidden state")
    if api.llama_process(own, _DECODE, batch):
        raise SystemExit("llama.cpp computes no step")
    api.llama_batch_ext_free(batch)


def _extension(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(api._lib, name)
    function.restype, function.argtypes = result, list(arguments)
    return function


if __name__ == "__main__":
    main()
