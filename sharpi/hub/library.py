"""huggingface_hub, which is installed only where models by name are wanted, and its folder."""

from pathlib import Path

from sharpi.errors import UsageError


def default_cache_folder() -> Path:
    """Where huggingface_hub keeps its files (HF_HUB_CACHE, HF_HOME); raises UsageError."""
    require_library()
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def require_library() -> None:
    """Raises UsageError where huggingface_hub is not installed."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "models by name need the package huggingface_hub; type pip install '.[hub]'"
        ) from error
