"""The names of the commands, grouped by purpose; each module is imported only when needed."""

from importlib import import_module

from sharpi.cli.parsing.fields import Function
from sharpi.cli.termination import exiting_on_ctrl_c

SECTIONS = {
    "Talk": ("run", "chat", "log"),
    "Models": ("models", "pull", "list", "rm", "cache", "inspect", "plan"),
    "Serve": ("serve", "launch", "ps", "join"),
    "Measure": ("bench", "perplexity", "stats", "simulate", "tokenize", "logits", "doctor"),
    "Help": ("help", "completion", "man", "version"),
}
NAMES = tuple(name for names in SECTIONS.values() for name in names)
_FOLDERS = {
    "Talk": "talk",
    "Models": "models",
    "Serve": "serving",
    "Measure": "measuring",
    "Help": "about",
}
_OTHER_MODULES = {"list": "list_models", "help": "help_command"}


def command_function(name: str) -> Function:
    """Imports the module of a command, and returns its function of the same name."""
    module = _OTHER_MODULES.get(name, name)
    folder = next(_FOLDERS[section] for section, names in SECTIONS.items() if name in names)
    with exiting_on_ctrl_c():
        command: Function = getattr(import_module(f"sharpi.cli.commands.{folder}.{module}"), module)
    return command
