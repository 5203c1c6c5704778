"""The options for recording the experts of a run."""

from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.options.option import option
from sharpi.cli.options.option_sources import OptionSources
from sharpi.cli.output.output_files import refuse_to_replace, refuse_unwritable
from sharpi.config import ExpertConfig

_EXPERTS = ExpertConfig()
_FILES = ("expert_stats", "moe_trace", "moe_profile")


class RecordOptions(Struct, frozen=True):
    """The files of expert records, written when the engine closes, and live output of routes."""

    heading: ClassVar = "Experts"

    expert_stats: Annotated[
        Path | None,
        option(
            "--expert-stats",
            "Write hits, loads, stalls and predictions at the end, as text or, if PATH ends in "
            ".json, as JSON; `sharpi stats` shows them.",
            "PATH",
        ),
    ] = _EXPERTS.stats
    moe_trace: Annotated[
        Path | None,
        option(
            "--moe-trace",
            "Record the routes of every token, an .npz file for `sharpi simulate`.",
            "PATH",
        ),
    ] = _EXPERTS.trace
    moe_profile: Annotated[
        Path | None,
        option(
            "--moe-profile",
            "Start with the expert uses in this file, if it exists, and save them at the end.",
            "PATH",
        ),
    ] = _EXPERTS.profile
    trace_moe: Annotated[
        bool,
        option("--trace-moe", "Print each token's routes, loads and pinned experts to stderr."),
    ] = _EXPERTS.trace_routes

    def extend(self, config: ExpertConfig, model: Path, sources: OptionSources) -> ExpertConfig:
        """Returns `config` with these options.

        Raises UsageError for a file that cannot be written, or that would replace the model or
        another output.
        """
        self._refuse_files(model, sources)
        return replace(
            config,
            stats=self.expert_stats,
            trace=self.moe_trace,
            profile=self.moe_profile,
            trace_routes=self.trace_moe,
        )

    def _refuse_files(self, model: Path, sources: OptionSources) -> None:
        written: dict[Path, str] = {}
        for name in _FILES:
            path: Path | None = getattr(self, name)
            if path is None:
                continue
            refuse_to_replace(sources.name(name), path, [model])
            refuse_unwritable(sources.name(name), path)
            if path in written:
                sources.raise_conflict(written[path], name, f"both write {path}")
            written[path] = name
