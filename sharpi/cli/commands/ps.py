"""`sharpi ps`: this user's running servers and their models."""

import json
from typing import TYPE_CHECKING, Any

from sharpi.cli.inputs import JsonOption
from sharpi.cli.output.terminal import print_stderr
from sharpi.errors import SharpiError
from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.serve.host.running_servers import RunningServer

_TIMEOUT_SECONDS = 3.0


def ps(as_json: JsonOption = False) -> None:
    """List the running servers and what each has loaded."""
    from sharpi.serve.host.running_servers import running_servers

    try:
        servers = running_servers()
    except OSError as error:
        raise SharpiError(f"cannot look for servers: {error}") from None
    found = [_about(server) for server in servers]
    if as_json:
        print(json.dumps(found))
    elif found:
        from sharpi.cli.output.tables import left, output_console, print_table

        columns = (
            *left("MODEL", "URL", "STATE", "ANSWERS"),
            *left("TOKENS/S", rank=1),
            *left("MEMORY"),
            *left("IDLE", rank=2),
            *left("PID"),
            *left("TIERS", rank=3),
        )
        print_table(output_console(), columns, map(_row, found))
    else:
        print_stderr("no server is running; `sharpi serve` starts one")


def _about(server: "RunningServer") -> dict[str, Any]:
    """Returns a server's facts and what its /props replies."""
    return {"pid": server.pid, "url": server.url, "model": server.model} | _props(server)


def _props(server: "RunningServer") -> dict[str, Any]:
    """Returns the JSON object of the server's /props; `state` is "silent" without a reply."""
    from http.client import HTTPException
    from urllib.request import ProxyHandler, Request, build_opener

    request = Request(
        f"{server.url}/props", headers={"Authorization": f"Bearer {server.status_key}"}
    )
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=_TIMEOUT_SECONDS) as response:
            value: dict[str, Any] = json.load(response)
            return value
    except (OSError, ValueError, HTTPException):
        return {"state": "silent"}


def _row(about: dict[str, Any]) -> tuple[str, ...]:
    running, waiting = about.get("answers_running", 0), about.get("answers_waiting", 0)
    memory, speed = about.get("resident_bytes"), about.get("tokens_per_second", 0.0)
    return (
        about["model"],
        about["url"],
        about["state"],
        f"{running}+{waiting}" if waiting else str(running),
        "reads a prompt" if running and not speed else f"{speed:.1f}",
        "-" if memory is None else format_bytes(memory),
        _duration(about.get("idle_seconds", 0.0)),
        str(about["pid"]),
        _bytes_by_tier(about),
    )


def _bytes_by_tier(about: dict[str, Any]) -> str:
    """Returns the size of the model's weights in each tier as text; "-" if it is not loaded."""
    if about["state"] != "loaded":
        return "-"
    tiers: dict[str, int] = about.get("bytes_by_tier", {})
    named = (f"{tier} {format_bytes(size)}" for tier, size in tiers.items() if size)
    return ", ".join(named) or f"mapped {format_bytes(about.get('file_bytes', 0))}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{rest} s"
