"""`sharpi launch`: a client that uses the server finds it, and the server ends with the client."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from command_line import CommandLine

from sharpi.cli.commands.launch import CLIENTS
from sharpi.resources import demo_model, native_library

pytestmark = pytest.mark.native
LIBRARY = native_library()

# Asks the server for its models and one answer, and writes what it was given.
CLIENT = """#!{python}
import json, os, sys, urllib.request
text = " ".join(sys.argv[1:]) + json.dumps(dict(os.environ))
url = "http://127.0.0.1:" + text.split("http://127.0.0.1:")[1].split("/")[0].split('"')[0]
with urllib.request.urlopen(url + "/v1/models") as answer:
    models = json.load(answer)["data"]
record = dict(argv=sys.argv[1:], env=dict(os.environ), url=url, models=[m["id"] for m in models])
open({record!r}, "w").write(json.dumps(record))
{more}
sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("SHARPI_NATIVE_LIBRARY", str(LIBRARY))
    return tmp_path


def write_client(folder: Path, name: str, more: str = "") -> Path:
    record, program = folder / "record.json", folder / "bin" / name
    program.write_text(CLIENT.format(python=sys.executable, record=str(record), more=more))
    program.chmod(0o755)
    return record


def is_served(url: str) -> bool:
    try:
        return httpx.get(url, timeout=60).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["codex", "opencode"])  # arguments, and a variable
def test_client_reaches_the_server_which_ends_with_it(
    sharpi: CommandLine, folder: Path, name: str
) -> None:
    record = write_client(folder, name)
    result = sharpi("launch", name, str(demo_model()), "--", "--flag", "a b")
    assert result.exit_code == 7, result.err
    found = json.loads(record.read_text())
    assert found["argv"][-2:] == ["--flag", "a b"]
    assert found["models"][0] == "local"
    assert not is_served(found["url"])
    assert "512 tokens of context" in result.err


def test_what_each_client_is_told(folder: Path) -> None:
    url = "http://127.0.0.1:1"
    variables, _ = CLIENTS["claude"].configure(url, 4096)
    assert variables["ANTHROPIC_BASE_URL"] == url
    assert variables["ANTHROPIC_MODEL"] == "local"
    _, arguments = CLIENTS["codex"].configure(url, 4096)
    assert arguments[:2] == ["-c", 'model="local"']
    assert f'base_url="{url}/v1"' in " ".join(arguments)
    assert "model_context_window=4096" in arguments
    variables, arguments = CLIENTS["aider"].configure(url, 4096)
    assert variables["OPENAI_API_BASE"] == f"{url}/v1"
    assert arguments[:2] == ("--model", "openai/local")
    variables, _ = CLIENTS["opencode"].configure(url, 4096)
    config = json.loads(variables["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "sharpi/local"
    assert config["provider"]["sharpi"]["options"]["baseURL"] == f"{url}/v1"
    assert config["provider"]["sharpi"]["models"]["local"]["limit"]["context"] == 4096


def test_missing_client(sharpi: CommandLine, folder: Path) -> None:
    result = sharpi("launch", "aider", str(demo_model()))
    assert (result.exit_code, result.out) == (2, "")
    assert result.err == (
        f"error: aider is not on PATH; install it with `{CLIENTS['aider'].install}`\n"
    )


def test_unknown_client(sharpi: CommandLine, folder: Path) -> None:
    result = sharpi("launch", "cloud", str(demo_model()))
    assert result.exit_code == 2
    assert "'cloud' is not one of 'claude', 'codex', 'aider', 'opencode'" in result.err


@pytest.mark.slow
def test_a_server_that_does_not_start(sharpi: CommandLine, folder: Path) -> None:
    write_client(folder, "claude")
    broken = folder / "broken.gguf"
    broken.write_bytes(demo_model().read_bytes()[:200_000])
    result = sharpi("launch", "claude", str(broken), "-c", "64")
    assert (result.exit_code, result.out) == (1, "")
    assert "truncated" in result.err or "broken.gguf" in result.err
    assert not (folder / "record.json").exists()


@pytest.mark.slow
def test_variables_of_the_server_do_not_hide_it(
    sharpi: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_client(folder, "aider")
    monkeypatch.setenv("SHARPI_API_KEY", "secret")
    monkeypatch.setenv("SHARPI_PORT", "1")
    assert sharpi("launch", "aider", str(demo_model())).exit_code == 7


@pytest.mark.slow
def test_sigterm_ends_client_and_server(folder: Path) -> None:
    record = write_client(folder, "codex", more="import time; time.sleep(60)")
    command = [sys.executable, "-m", "sharpi", "launch", "codex", str(demo_model())]
    with subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL) as program:
        while not record.exists() or not record.read_text():
            assert program.poll() is None
            time.sleep(0.05)
        program.send_signal(signal.SIGINT)  # which is the client's affair
        time.sleep(0.2)
        assert program.poll() is None
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=60) == 143
    assert not is_served(json.loads(record.read_text())["url"])
