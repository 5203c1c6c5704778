"""HostedModel: the model of a server, loaded and unloaded, and the reason that it is not loaded."""

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

    Any thread may read `loaded`, `is_loading` and `failure`: why the model was unloaded, could not
    be loaded, or failed since its last answer. `log` gets lines for the server's log.
    """

    def __init__(
        self, load: Callable[[], Engine], max_parallel: int, log: Callable[[str], None]
    ) -> None:
        self._load, self._max_parallel, self._log = load, max_parallel, log
        self._has_changed = False  # whether the file changed since the model was first loaded
        self.loaded: Loaded | None = None
        self.is_loading = False
        self.failure: str | None = None
        # An error that ended an answer and will end every other one; None if there is none.
        self.fatal: ClusterError | ModelFileError | None = None

    def load(self) -> Loaded:
        """Loads the model; raises what loading raises, and ModelFileError for an empty file."""
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

    def give_up(self, error: Exception, num_answers: int) -> FinishInfo:
        """Records the error of a step that ends all answers; returns their FinishInfo."""
        if isinstance(error, ModelFileError):
            self.failure = "the model's file was changed or cannot be read"
            return self.distrust_file(error)
        if isinstance(error, ClusterError):  # the next request loads it when all machines are back
            self.failure = "a machine that runs part of the model is lost"
            self._log(f"the model is unloaded: {error}")
            return FinishInfo("error", error=lost_rank())
        self._log(f"a step failed, and {num_answers} answers with it: {error!r}")
        return FinishInfo("error", error=error)

    def is_fatal(self, error: BaseException, file: MappedFile) -> bool:
        """Returns whether an answer's error makes the whole model unusable.

        After a fault of the file, that is so only if the file has been replaced. Otherwise a client
        could make the server load the model again and again.
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
        """Returns the error in `fatal`, and clears it, because the error refers to the engine."""
        assert self.fatal is not None
        fatal, self.fatal = self.fatal, None
        return fatal

    def distrust_file(self, error: ModelFileError) -> FinishInfo:
        """Records that the file changed; the next request loads it again, unless it is empty."""
        self._has_changed = True
        self._log(f"the model is unloaded: {error}")
        return FinishInfo("error", error=unreadable_model())

    def close(self, loaded: Loaded) -> None:
        """Closes the model, which is not `loaded` any more, and logs its notes."""
        loaded.file.close()
        try:
            loaded.engine.close()
            notes = loaded.engine.exit_notes
        except Exception as error:
            notes = (f"closing the model failed: {error!r}",)
        for note in notes:
            self._log(note)


def _require_content(engine: Engine) -> None:
    """Closes an engine whose file has lost its content, and raises ModelFileError."""
    try:
        check_not_empty(engine.file)
    except ModelFileError:
        engine.close()
        raise


def release_memory() -> None:
    """Frees reference cycles, which may hold mappings, and returns free memory to the system."""
    gc.unfreeze()  # the objects that a server froze at its start
    gc.collect()
    gc.freeze()  # later collections would scan the remaining objects, and delay all threads
    trim_heaps()
