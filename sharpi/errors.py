"""The errors that a user can cause or run into; any other exception is a bug.

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


class BusyError(SharpiError):
    """Too many requests of one kind are in progress; the same request may succeed later."""


class ModelFileError(SharpiError):
    """The file cannot be read as a GGUF model: missing, truncated, corrupt or inconsistent."""


class UnsupportedModelError(SharpiError):
    """The file is valid, but needs a feature that sharpi does not have."""


class TraceFileError(SharpiError):
    """The file is not a trace of routes, or its content contradicts itself."""


class StatsFileError(SharpiError):
    """The file is not a file of expert stats or a profile, or it belongs to another model."""


class TemplateError(SharpiError):
    """The chat template failed, refused the messages, or tried to leave its sandbox."""


class ContextFullError(SharpiError):
    """The tokens do not fit into the context.

    The message says how many fit and how to raise the limit.
    """


class DeviceError(SharpiError):
    """The GPU cannot be used, or does not have the memory that was requested."""


class MissingPackageError(DeviceError):
    """A Python package that a GPU or a group of machines needs is missing or broken."""


class HubError(SharpiError):
    """The model hub refuses a request, cannot be reached, or lacks the named repository or file."""


class ClusterError(SharpiError):
    """Another machine of the group is missing, has failed, or has a different model."""


class LinkError(ClusterError):
    """This machine has no usable network interface to the other machines of its group."""
