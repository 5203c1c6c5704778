"""HostedModel: loads and unloads the model of a server, and records why it failed."""

import gc
import time
from collections.abc import Callable

from sharpi.engine.engine import Engine
from sharpi.engine.sampling.text_delta import FinishInfo
from sharpi.engine.scheduling.scheduler import Scheduler
from sharpi.errors import ClusterError, ModelFileError
from sharpi.serve.host.loaded import Loaded
from sharpi.serve.host.mapped_file import MappedFile, check_not_empty
from sharpi.serve.http.errors import lost_rank, unreadable_model
from sharpi.system.heaps import trim_heaps


class HostedModel:
    """Loads the model and closes it again; only the engine's thread calls its methods.

    Any thread may read `loaded`, `is_loading` and `failure`. `failure` says why loading or an
    answer failed, and is None after the next success. `log` is called with lines for the log.
    """

    def __init__(
        self, load: Callable[[], Engine], max_parallel: int, log: Callable[[str], None]
    ) -> None:
        self._load, self._max_parallel, self._log = load, max_parallel, log
        self._has_changed = False  # whether the file changed since the model was first loaded
        self.loaded: Loaded | None = None
        self.is_loading = False
        self.failure: str | None = None
        # The error of an answer after which the model cannot be used; None normally.
        self.fatal: ClusterError | ModelFileError | None = None

    def load(self) -> Loaded:
        """Loads the model; raises the error of loading.

        If the file changed since the first load, a file of zeros raises ModelFileError.
        """
        self.is_loading, since = True, time.time_ns()
        try:
            engine = self._load()
            if self._has_changed:
                _require_content(engine)
            file = MappedFile(engine.file, since)
            self.loaded = Loaded(engine, Scheduler(engine, self._max_parallel), file)
            self.failure = self.fatal = None
        finally:
            self.is_loading = False
        return self.loaded

    def record_step_error(self, error: Exception, num_answers: int) -> FinishInfo:
        """Records an error that ends all answers; returns the FinishInfo for them."""
        if isinstance(error, ModelFileError):
            self.failure = "the model's file was changed or cannot be read"
            return self.mark_file_changed(error)
        if isinstance(error, ClusterError):  # the next request loads the model again
            self.failure = "a machine that runs part of the model is lost"
            self._log(f"the model is unloaded: {error}")
            return FinishInfo("error", error=lost_rank())
        self._log(f"a step failed, and {num_answers} answers with it: {error!r}")
        return FinishInfo("error", error=error)

    def is_fatal(self, error: BaseException, file: MappedFile) -> bool:
        """Returns whether an answer's error makes the whole model unusable.

        A ModelFileError does so only if the file was replaced. Otherwise a client could make the
        server load the model again and again. A ClusterError always does; other errors never do.
        """
        if isinstance(error, ModelFileError) and not file.is_replaced():
            self.failure = "the model's file holds what makes no sense"
            self._log(f"an answer failed: {error}")
            return False
        if not isinstance(error, ClusterError | ModelFileError):
            return False
        self.fatal = error
        return True

    def take_fatal(self) -> ClusterError | ModelFileError:
        """Returns `fatal` and sets it to None, because the error refers to the engine."""
        assert self.fatal is not None
        fatal, self.fatal = self.fatal, None
        return fatal

    def mark_file_changed(self, error: ModelFileError) -> FinishInfo:
        """Records that the model's file changed; returns the FinishInfo for open answers.

        The next request loads the file again, and fails if the file holds only zeros.
        """
        self._has_changed = True
        self._log(f"the model is unloaded: {error}")
        return FinishInfo("error", error=unreadable_model())

    def close(self, loaded: Loaded) -> None:
        """Closes a model that `loaded` no longer holds, and logs the notes of its engine."""
        loaded.file.close()
        try:
            loaded.engine.close()
            notes = loaded.engine.exit_notes
        except Exception as error:
            notes = (f"closing the model failed: {error!r}",)
        for note in notes:
            self._log(note)


def _require_content(engine: Engine) -> None:
    """Closes the engine and raises ModelFileError if its file holds only zeros."""
    try:
        check_not_empty(engine.file)
    except ModelFileError:
        engine.close()
        raise


def release_memory() -> None:
    """Frees reference cycles, which may hold file mappings, and trims the heap."""
    gc.unfreeze()  # the objects that a server froze at its start
    gc.collect()
    gc.freeze()  # later collections would scan the remaining objects, and delay all threads
    trim_heaps()
