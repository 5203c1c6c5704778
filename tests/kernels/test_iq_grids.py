"""The grids of the IQ types are those of the gguf package."""

import runpy
from pathlib import Path

from sharpi.resources import kernels_folder


def test_the_header_is_what_its_script_writes() -> None:
    script: Path = kernels_folder() / "write_iq_grids.py"
    assert runpy.run_path(str(script))["header"]() == (kernels_folder() / "iq_grids.h").read_text()
