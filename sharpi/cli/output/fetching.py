"""Fetches a model from the hub with a display of its progress."""

import logging
from typing import TYPE_CHECKING

import click

from sharpi.cli import exit_codes
from sharpi.cli.output.download_display import download_display
from sharpi.cli.output.terminal import print_stderr
from sharpi.hub.model_name import ModelName

if TYPE_CHECKING:
    from sharpi.hub.pull import Pulled


def fetch(name: ModelName) -> "Pulled":
    """Downloads the missing files of a model; raises HubError, and click's Exit after Ctrl-C."""
    from sharpi.hub.cache import Cache, default_cache_folder

    cache = Cache(default_cache_folder())
    from sharpi.hub.pull import Puller

    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # sharpi reports everything itself
    try:
        with download_display() as display:
            return Puller(cache, display).pull(name)
    except KeyboardInterrupt:
        print_stderr(f"stopped; `sharpi pull {name}` resumes it")
        raise click.exceptions.Exit(exit_codes.INTERRUPTED) from None
