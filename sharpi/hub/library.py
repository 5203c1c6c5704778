"""huggingface_hub, which is installed only where models by name are wanted, and its folder."""

from pathlib import Path

from sharpi.errors import UsageError


def default_cache_folder() -> Path:
    """Where huggingface_hub keeps its files (HF_HUB_CACHE, HF_HOME); raises UsageError."""
    try:
        from huggingface_hub import constants
    except ImportError as error:
        raise UsageError(
            "models by name need the package huggingface_hub; type pip install '.[hub]'"
        ) from error
    return Path(constants.HF_HUB_CACHE)
