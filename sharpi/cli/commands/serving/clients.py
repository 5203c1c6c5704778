"""The programs that `sharpi launch` starts, with the configuration that names the server."""

import json
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

MODEL = "local"  # the alias under which clients ask for the model
_NO_KEY = "none"


class Client(Struct, frozen=True):
    """A program that uses a server.

    `configure` returns, for the URL of a server, environment variables and arguments.
    """

    program: str
    install: str  # the command that installs it
    configure: Callable[[str], tuple[Mapping[str, str], Sequence[str]]]


def _claude(url: str) -> tuple[Mapping[str, str], Sequence[str]]:
    names = ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": _NO_KEY,
        "ANTHROPIC_API_KEY": "",  # a key would take precedence over the token
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        **{f"ANTHROPIC_{name}": MODEL for name in names},
    }, ()


def _codex(url: str) -> tuple[Mapping[str, str], Sequence[str]]:
    provider = f'{{name="sharpi", base_url="{url}/v1", wire_api="responses"}}'
    settings = (
        f'model="{MODEL}"',
        'model_provider="sharpi"',
        f"model_providers.sharpi={provider}",
        'web_search="disabled"',
        "agents.enabled=false",
    )
    return {}, [argument for setting in settings for argument in ("-c", setting)]


def _aider(url: str) -> tuple[Mapping[str, str], Sequence[str]]:
    variables = {"OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": _NO_KEY}
    return variables, ("--model", f"openai/{MODEL}", "--no-show-model-warnings")


def _opencode(url: str) -> tuple[Mapping[str, str], Sequence[str]]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "sharpi",
        "options": {"baseURL": f"{url}/v1", "apiKey": _NO_KEY},
        "models": {MODEL: {"name": MODEL}},
    }
    config = {"provider": {"sharpi": provider}, "model": f"sharpi/{MODEL}"}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}, ()


CLIENTS = {
    "claude": Client("claude", "npm install -g @anthropic-ai/claude-code", _claude),
    "codex": Client("codex", "npm install -g @openai/codex", _codex),
    "aider": Client("aider", "pip install aider-chat", _aider),
    "opencode": Client("opencode", "npm install -g opencode-ai", _opencode),
}
