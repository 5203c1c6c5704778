"""`sharpi launch`: starts a server and a program that uses it; stops the server afterwards."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct

from sharpi.cli.inputs import PullOption, find_model
from sharpi.cli.output.terminal import print_note
from sharpi.errors import UsageError
from sharpi.settings.option import Option

ClientName = Literal["claude", "codex", "aider", "opencode"]

_MOST_CONTEXT = 32768  # the default limit; agents send long prompts


def launch(
    context: typer.Context,
    client: Annotated[ClientName, Option("CLIENT", "claude, codex, aider or opencode.")],
    model: Annotated[str, Option("MODEL", "A GGUF file or a name, as `sharpi run` takes it.")],
    rest: Annotated[list[str] | None, Option("ARGS", "Arguments of the client, after --.")] = None,
    pull: PullOption = False,
    ctx_size: Annotated[
        int | None,
        Option("-c --ctx-size N", "Context size.", min=1, default="the model's, at most 32768"),
    ] = None,
) -> None:
    """Start a coding agent on a model.

    Serves MODEL on a free port of this machine, runs the client with the variables and arguments
    that make it use that server, and stops the server when the client ends. The exit code is the
    client's. Other flags of the server come from variables, such as SHARPI_RAM=16GiB.
    """

    chosen = CLIENTS[client]
    program = shutil.which(chosen.program)
    if program is None:
        raise UsageError(f"{chosen.program} is not on PATH; install it with `{chosen.install}`")
    path = find_model(context, model)
    size = ctx_size or _context_size(path)
    print_note(f"loading {path.name} with {size} tokens of context for {client}")
    with running_server(path, size) as url:
        variables, arguments = chosen.configure(url, size)
        code = _run([program, *arguments, *(rest or ())], dict(variables))
    raise typer.Exit(code)


def _context_size(path: Path) -> int:
    from sharpi.gguf.file_summary import summarise
    from sharpi.gguf.reader import open_gguf

    with open_gguf(path) as file:
        return min(summarise(file).context_length or _MOST_CONTEXT, _MOST_CONTEXT)


def _run(command: list[str], variables: dict[str, str]) -> int:
    """Runs a program, which alone handles Ctrl-C (it would inherit SIG_IGN); returns its code."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with subprocess.Popen(command, env=os.environ | variables) as client:
            try:
                code = client.wait()
            except BaseException:  # also for SIGTERM, which ends this process
                client.terminate()
                raise
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


MODEL = "local"  # the alias under which clients ask for the model
_NO_KEY = "none"


class Client(Struct, frozen=True):
    """A program that uses a server.

    `configure` returns, for the URL of a server and its context size, environment variables and
    arguments.
    """

    program: str
    install: str  # the command that installs it
    configure: Callable[[str, int], tuple[Mapping[str, str], Sequence[str]]]


def _claude(url: str, _: int) -> tuple[Mapping[str, str], Sequence[str]]:
    names = ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": _NO_KEY,
        "ANTHROPIC_API_KEY": "",  # a key would take precedence over the token
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **{f"ANTHROPIC_{name}": MODEL for name in names},
    }, ()


def _codex(url: str, context_size: int) -> tuple[Mapping[str, str], Sequence[str]]:
    provider = f'{{name="sharpi", base_url="{url}/v1", wire_api="responses"}}'
    settings = (
        f'model="{MODEL}"',
        f"model_context_window={context_size}",  # near which it compacts its history
        'model_provider="sharpi"',
        f"model_providers.sharpi={provider}",
        'web_search="disabled"',
        "agents.enabled=false",
    )
    return {}, [argument for setting in settings for argument in ("-c", setting)]


def _aider(url: str, _: int) -> tuple[Mapping[str, str], Sequence[str]]:
    variables = {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": _NO_KEY}
    return variables, ("--model", f"openai/{MODEL}", "--no-show-model-warnings")


def _opencode(url: str, context_size: int) -> tuple[Mapping[str, str], Sequence[str]]:
    limit = {"context": context_size, "output": context_size // 4}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "sharpi",
        "options": {"baseURL": f"{url}/v1", "apiKey": _NO_KEY},
        "models": {MODEL: {"name": MODEL, "limit": limit}},
    }
    config = {"provider": {"sharpi": provider}, "model": f"sharpi/{MODEL}"}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}, ()


CLIENTS = {
    "claude": Client("claude", "npm install -g @anthropic-ai/claude-code", _claude),
    "codex": Client("codex", "npm install -g @openai/codex", _codex),
    "aider": Client("aider", "pip install aider-chat", _aider),
    "opencode": Client("opencode", "npm install -g opencode-ai", _opencode),
}


_READY = "serving "
_STOP_SECONDS = 15.0  # seconds to wait after SIGTERM; the server itself stops sooner
# Settings of the environment that would keep the client from reaching the server.
_DROPPED = ("SHARPI_API_KEY", "SHARPI_HOST", "SHARPI_PORT", "SHARPI_MODEL", "SHARPI_ALIAS")


@contextmanager
def running_server(model: Path, context_size: int) -> Iterator[str]:
    """Yields the URL of a server with the model loaded, and stops the server afterwards.

    The server's stderr is that of this process. If the server does not start, raises Typer's Exit
    with its exit code.
    """
    where = ("--host", "127.0.0.1", "--port", "0", "--alias", MODEL, "-c", str(context_size))
    with subprocess.Popen(
        [sys.executable, "-m", "sharpi", "serve", str(model), *where],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in _DROPPED},
        start_new_session=True,  # leaves Ctrl-C to the client
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()  # comes when the model is loaded
            if not line.startswith(_READY):
                raise typer.Exit(server.wait() or 1)
            yield line.split()[-1]
        finally:
            server.terminate()
            try:
                server.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
