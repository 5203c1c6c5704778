"""Describes the model of a chat for the user: its quant type, its context and where it runs."""

import shutil
from collections import Counter
from typing import TYPE_CHECKING

from sharpi import __version__

if TYPE_CHECKING:
    from sharpi.cli.chat.conversation import Conversation
    from sharpi.engine.engine import Engine

_LEAST_NAME = 8  # letters of the model's name that remain in the bottom line, at least


def describe(engine: "Engine") -> str:
    """Returns one line: the model, its architecture and its quant type."""
    kind = f"{engine.model_config.architecture}, {_quant_type(engine)}"
    return f"{engine.config.model.stem} ({kind})"


def describe_place(engine: "Engine") -> str:
    """Returns one line: the size of the context, and where the model runs."""
    return f"context {engine.context_size} tokens, {_place(engine)}"


def greeting(description: str, has_no_template: bool) -> str:
    """Returns the first lines of a chat: the version, the description, and a hint for the user."""
    first = f"sharpi {__version__} · {description}"
    if has_no_template:
        hint = "This model has no chat template and continues what you write. /help for help."
    else:
        hint = "Ask away. /help for help."
    return f"{first}\n{hint}"


def status_line(conversation: "Conversation") -> str:
    """Returns the bottom line of the screen: the model, the context in use, and the speed.

    A long model name is cut, so that the numbers fit.
    """
    used, size = conversation.num_tokens, conversation.context_size
    numbers = f" · {used} of {size} tokens"
    timings = conversation.timings
    if timings is not None and timings.decode_tokens_per_second:
        numbers += f" · {timings.decode_tokens_per_second:.1f} tokens/s"
    room = max(_LEAST_NAME, shutil.get_terminal_size().columns - len(numbers) - 2)
    name = conversation.model.stem
    return f" {name if len(name) <= room else name[: room - 3] + '...'}{numbers}"


def _quant_type(engine: "Engine") -> str:
    """Returns the quant type that most bytes of the file have."""
    num_bytes: Counter[str] = Counter()
    for tensor in engine.file.tensors.values():
        num_bytes[tensor.quant_type.name] += tensor.num_bytes
    return num_bytes.most_common(1)[0][0] if num_bytes else "no weights"


def _place(engine: "Engine") -> str:
    num_layers, plan = engine.model_config.num_layers, engine.plan
    on_gpu = num_layers - (plan.first_gpu_layer if plan is not None else num_layers)
    if on_gpu == num_layers:
        place = "on the GPU"
    elif on_gpu:
        place = f"{on_gpu} of {num_layers} layers on the GPU"
    else:
        threads = engine.runner.settings.num_threads
        place = f"on the CPU with {threads} thread{'' if threads == 1 else 's'}"
    return place + (", experts from disk" if engine.streams_experts else "")
