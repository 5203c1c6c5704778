"""The clients in docs/server.md, run as written."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from scripted_host import ScriptedHost

_PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text("utf-8")
_ADDRESS = "http://127.0.0.1:8080"


def blocks(language: str, word: str) -> list[str]:
    """Returns the page's code blocks in a language that contain the word."""
    found = re.findall(rf"```{language}\n(.*?)```", _PAGE, re.DOTALL)
    return [code for code in found if word in code]


@pytest.mark.slow
@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_python(
    host: ScriptedHost, url: str, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    [code] = blocks("python", f"from {package} import")
    assert _ADDRESS in code
    exec(code.replace(_ADDRESS, url), {"__name__": "__main__"})
    assert capsys.readouterr().out == "Hello there."


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(host: ScriptedHost, url: str) -> None:
    [code] = blocks("sh", "curl")
    command = ["sh", "-c", code.replace(_ADDRESS, url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert '"content":"Hello there."' in done.stdout
