"""The errors a user can cause or meet. Everything else that is raised is a bug.

The command line prints `str(error)` on one line and exits with `exit_code`; a message therefore
says what is wrong, where, and what to do.
"""


class SharpiError(Exception):
    """An expected failure, worded for the user."""

    exit_code = 1


class UsageError(SharpiError):
    """The request itself is wrong: a flag, a variable or their combination."""

    exit_code = 2


class GrammarError(UsageError):
    """The grammar or JSON schema is malformed, not supported in some part, or too complex."""


class ModelFileError(SharpiError):
    """The file cannot be read as a GGUF model: missing, truncated, corrupt or inconsistent."""


class UnsupportedModelError(SharpiError):
    """The file is sound, but asks for something sharpi does not have."""


class TraceFileError(SharpiError):
    """The file is not a trace of routes, or what it holds contradicts itself."""


class StatsFileError(SharpiError):
    """The file holds no expert stats or profile, or one of another model."""


class TemplateError(SharpiError):
    """The chat template failed, refused the messages, or tried to leave its sandbox."""


class ContextFullError(SharpiError):
    """The tokens do not fit the context; says how many fit and how to raise the limit."""


class DeviceError(SharpiError):
    """The GPU cannot be used, or has not the memory that was asked of it."""


class HubError(SharpiError):
    """The model hub or its cache has not what was named, refuses it, or cannot be reached."""
