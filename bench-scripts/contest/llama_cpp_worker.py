"""The worker that runs llama.cpp through llama-cpp-python; contestant.py starts it.

`variant`: "mapped" computes from the mapped file, "repacked" copies weights into llama.cpp's
repacked layouts when it loads the model.
"""

import sys
from ctypes import c_int32
from pathlib import Path
from typing import Any

import llama_cpp

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from contest import worker_loop

_ERROR = 4  # ggml_log_level


@llama_cpp.llama_log_callback
def _log(level: int, text: bytes, _: Any) -> None:
    if level == _ERROR:
        print(text.decode(errors="replace"), end="", file=sys.stderr)


class LlamaCppModel:
    """A `Model` that computes one sequence in a llama.cpp context."""

    def __init__(self, settings: dict[str, Any]) -> None:
        llama_cpp.llama_log_set(_log, None)
        llama_cpp.llama_backend_init()
        self._model = self._load(settings["model"], settings["variant"] == "repacked")
        self._context = self._open(settings)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self.description = {
            "version": llama_cpp.__version__,
            "system": llama_cpp.llama_print_system_info().decode(),
        }

    def _load(self, path: str, repacks: bool) -> Any:
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = repacks
        parameters.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
        model = llama_cpp.llama_model_load_from_file(path.encode(), parameters)
        if model is None:
            raise SystemExit(f"llama.cpp cannot load {path}")
        return model

    def _open(self, settings: dict[str, Any]) -> Any:
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = settings["context_size"]
        parameters.n_batch = parameters.n_ubatch = settings["batch_size"]
        parameters.n_threads = parameters.n_threads_batch = settings["num_threads"]
        context = llama_cpp.llama_init_from_model(self._model, parameters)
        if context is None:
            raise SystemExit("llama.cpp cannot make a context")
        return context

    def compute(self, ids: list[int]) -> None:
        array = (c_int32 * len(ids))(*ids)  # the batch only points to it
        batch = llama_cpp.llama_batch_get_one(array, len(ids))
        if llama_cpp.llama_decode(self._context, batch):
            raise SystemExit("llama.cpp cannot decode the ids")
        llama_cpp.llama_synchronize(self._context)

    def truncate(self, length: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1)

    def counts(self) -> dict[str, float]:
        return {}


if __name__ == "__main__":
    worker_loop.run(LlamaCppModel)
