"""Paths of files in the package: architecture specs, demo model, CUDA sources, web page, library.

An editable install copies nothing, so the checkout is searched first; a wheel has the same folders
inside the package.
"""

import os
import sysconfig
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent
_LIBRARY = Path("lib") / "libsharpi_cpu.so"


def is_checkout() -> bool:
    """Returns True if the package runs from a checkout of the repository, not from a wheel."""
    return (_CHECKOUT / "pyproject.toml").exists()


def install_command(extra: str = "") -> str:
    """Returns the pip command that adds the packages of an extra to this installation."""
    extras = f"[{extra}]" if extra else ""
    return f"pip install -e '.{extras}'" if is_checkout() else f"pip install 'sharpi{extras}'"


@cache
def models_folder() -> Path:
    """Returns the folder with the `<architecture>.toml` specs and `demo/`."""
    return _root() / "models"


@cache
def kernels_folder() -> Path:
    """Returns the folder with `quant_blocks.h` and the CUDA sources in `cuda/`."""
    return _root() / "kernels"


def _root() -> Path:
    return _CHECKOUT if is_checkout() else _PACKAGE


def page_folder() -> Path:
    """Returns the folder with the server's web page: `index.html` and what it loads."""
    return _PACKAGE / "serve" / "page"


def demo_model() -> Path:
    """Returns the path of the small mixture-of-experts model that ships with sharpi."""
    return models_folder() / "demo" / "stories-moe.gguf"


def native_library() -> Path:
    """Returns the path of the compiled CPU library, whether it exists or not.

    SHARPI_NATIVE_LIBRARY, if set, is the path of another build. A wheel has the library inside the
    package. An editable install has it in site-packages.
    """
    if override := os.environ.get("SHARPI_NATIVE_LIBRARY"):
        return Path(override)
    inside = _PACKAGE / _LIBRARY
    beside = Path(sysconfig.get_path("platlib")) / "sharpi" / _LIBRARY
    return beside if beside.exists() and not inside.exists() else inside
