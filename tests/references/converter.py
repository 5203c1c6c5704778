"""llama.cpp's own converter, run in this process on a saved model.

The folder is a llama.cpp source tree, or the part of one with `conversion/` and `gguf-py/`.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedTokenizerFast


def load_converter(folder: Path) -> Any:
    """Returns the converter's package, changed to use one tiny GPT-2-like vocabulary for all.

    Unchanged, it knows vocabularies by hash, and transformers' tokenizer of an architecture adds
    that architecture's own special tokens.
    """
    if not (folder / "conversion" / "base.py").is_file():
        raise SystemExit(f"{folder} holds no conversion/base.py; give a llama.cpp source folder")
    sys.path[:0] = [str(folder / "gguf-py"), str(folder)]
    converter = importlib.import_module("conversion")
    converter.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    converter.ModelBase.no_mtp = True  # the tiny models predict one token at a time
    transformers.AutoTokenizer.from_pretrained = PreTrainedTokenizerFast.from_pretrained
    return converter


def convert(converter: Any, model_folder: Path, output: Path) -> None:
    """Writes the F16 GGUF of a Hugging Face model folder."""
    import gguf
    import torch

    hparams = converter.ModelBase.load_hparams(model_folder, False)
    architecture = converter.get_model_architecture(hparams, converter.ModelType.TEXT)
    model_class = converter.get_model_class(architecture)
    model_class.set_vocab = converter.TextModel._set_vocab_gpt2
    with torch.inference_mode():
        model_class(
            model_folder, gguf.LlamaFileType.MOSTLY_F16, output, model_name=output.stem
        ).write()
