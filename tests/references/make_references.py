"""Makes every reference: `<case>.gguf` (F16) and `<case>.npz` (token ids, float32 logits).

Run by `make references`, in an environment of its own.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import mxfp4
import numpy as np
import renames
from cases import CASES, Case
from converter import convert, load_converter
from dense_cases import DENSE_CASES
from tiny_models import make_reference
from tokenizer import save_tokenizer


def main() -> None:
    """Parses the command line and makes the cases that it names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama-cpp", type=Path, required=True, help="llama.cpp source folder")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("cases", nargs="*", help="names of cases; all when none is given")
    arguments = parser.parse_args()
    converter = load_converter(arguments.llama_cpp)
    for case in (*CASES, *DENSE_CASES):
        if not arguments.cases or case.name in arguments.cases:
            make_case(case, converter, arguments.output)


def make_case(case: Case, converter: Any, output: Path) -> None:
    """Writes one case's two files into `output`."""
    reference = make_reference(case)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference.model.save_pretrained(folder)
        if reference.model.config.model_type == "gpt_oss":
            mxfp4.pack(folder)
        if case.rename:
            getattr(renames, case.rename)(folder)
        save_tokenizer(folder)
        convert(converter, folder, output / f"{case.name}.gguf")
    if case.added_keys:
        from requantise import add_keys  # after the converter, whose gguf package is its own

        add_keys(output / f"{case.name}.gguf", case.added_keys)
    np.savez_compressed(
        output / f"{case.name}.npz", tokens=reference.tokens, logits=reference.logits
    )
    spread = float(reference.logits.std())
    print(f"{case.name}: seed {reference.seed}, margin {reference.margin:.3f}, std {spread:.2f}")


if __name__ == "__main__":
    main()
