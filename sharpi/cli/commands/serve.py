"""`sharpi serve`: a model behind OpenAI's and Anthropic's APIs, and a web page."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from sharpi.cli.inputs import ModelArgument, ModelOption, PullOption, find_model
from sharpi.cli.output.loading import ProgressBar, open_engine
from sharpi.cli.output.terminal import print_note
from sharpi.cli.ranks import follows, join
from sharpi.cli.run_config import OptionSources, complete
from sharpi.cli.termination import exit_immediately
from sharpi.errors import UsageError
from sharpi.settings import RunConfig, SamplingParams
from sharpi.settings.serving import ServeOptions

if TYPE_CHECKING:
    from sharpi.engine.engine import Engine
    from sharpi.serve.host.model_host import ModelHost, ModelHostSettings


def serve(
    context: typer.Context,
    serving: ServeOptions,
    sampling: SamplingParams,
    config: RunConfig,
    model: ModelArgument = None,
    model_file: ModelOption = None,
    pull: PullOption = False,
) -> None:
    """Serve a model to several OpenAI and Anthropic clients at once.

    The sampling options are the defaults of requests. Ctrl-C, SIGTERM and SIGHUP stop the server;
    open answers finish first, within the time that --grace gives them.
    """
    _refuse_lost_records(serving, OptionSources(context))
    _refuse_slot_folder(serving)
    path = find_model(context, model)
    config = replace(complete(context, config, path), num_parallel=serving.parallel)
    if follows(config):
        with open_engine(config):
            return
    from sharpi.cli.commands.server import serve_until_stopped
    from sharpi.serve.host.model_host import ModelHost
    from sharpi.serve.server_log import ServerLog
    from sharpi.serve.web_server import bind
    from sharpi.system.process import share_heaps

    share_heaps()
    with bind(serving.host, serving.port) as listener, ServerLog() as log:
        with ProgressBar() as bar:
            load = _Loader(config, bar).load
            host = ModelHost(load, _host_settings(serving, sampling, path), log=log.note)
            _start(host, bar)
        try:
            serve_until_stopped(host, serving, listener, log)
        finally:
            host.close()


def _start(host: "ModelHost", bar: ProgressBar) -> None:
    """Loads the model; a signal while it loads ends the process at once."""
    try:
        host.start()
    except (KeyboardInterrupt, SystemExit) as end:
        if host.state != "loading":
            raise
        bar.close()
        print_note("stopped before the model was loaded")
        exit_immediately(end)


class _Loader:
    """Loads the model each time it is needed; the first load shows a progress bar and notes."""

    def __init__(self, config: RunConfig, bar: ProgressBar) -> None:
        self._config, self._bar = config, bar
        self._is_first = True

    def load(self) -> "Engine":
        """Loads the model on the engine's thread; raises SharpiError."""
        from sharpi.engine.loader import load_engine

        cluster = self._config.cluster
        cluster_loader = None if cluster is None else join(self._config, cluster)
        show = self._bar.show if self._is_first else None
        engine = load_engine(self._config, show, share=cluster_loader)
        if self._is_first:
            for line in engine.notes:
                print_note(line)
        self._is_first = False
        return engine


def _refuse_lost_records(serving: ServeOptions, sources: OptionSources) -> None:
    """Raises UsageError for --idle-unload with a file that each load would overwrite."""
    if serving.idle_unload is None:
        return
    for name in ("expert_stats", "moe_trace"):
        if sources.has(name):
            sources.raise_conflict(
                "idle_unload", name, "each load of the model starts a new record"
            )


def _refuse_slot_folder(serving: ServeOptions) -> None:
    folder = serving.slot_save_path
    if folder is not None and not folder.is_dir():
        what = "it is not a folder" if folder.exists() else "there is no such folder"
        raise UsageError(f"--slot-save-path {folder}: {what}")


def _host_settings(
    serving: ServeOptions, sampling: SamplingParams, model: Path
) -> "ModelHostSettings":
    from sharpi.serve.host.model_host import ModelHostSettings

    names = [*serving.alias, model.stem]
    minutes = serving.idle_unload
    return ModelHostSettings(
        model_id=names[0],
        aliases=tuple(names[1:]),
        max_parallel=serving.parallel,
        max_waiting=serving.queue,
        idle_seconds=None if minutes is None else minutes * 60,
        sampling=sampling,
    )
