"""Opens the prompt cache of a model that has just been loaded."""

from sharpi.config import RunConfig
from sharpi.engine.prompt_cache.arithmetic import arithmetic_of
from sharpi.engine.prompt_cache.cache_folder import CacheFolder
from sharpi.engine.prompt_cache.model_digest import ModelDigest
from sharpi.engine.prompt_cache.prompt_cache import ModelIdentity, PromptCache
from sharpi.engine.prompt_cache.save_queue import KvMemory
from sharpi.engine.settings import EngineSettings
from sharpi.gguf.reader import GgufFile
from sharpi.model.config import ModelConfig


def open_cache_folder(config: RunConfig) -> CacheFolder | None:
    """Opens the folder that the user named, if any; raises UsageError."""
    if config.prompt_cache is None:
        return None
    return CacheFolder(config.prompt_cache, config.prompt_cache_bytes)


def open_prompt_cache(
    folder: CacheFolder | None,
    config: RunConfig,
    file: GgufFile,
    model: ModelConfig,
    settings: EngineSettings,
    memory: KvMemory,
    gpu: str | None,
) -> PromptCache | None:
    """Returns the prompt cache of a model; None without a folder."""
    if folder is None:
        return None
    identity = ModelIdentity(
        digest=ModelDigest(folder.path, file.parts),
        arithmetic=arithmetic_of(config, settings, model, gpu),
        about={"model": file.path.name, "kv_type": str(settings.kv_types)},
    )
    return PromptCache(folder, memory, identity)
