"""Serves a loaded model on a bound socket until the server is stopped."""

import asyncio
import logging
import os
import secrets
import socket
import sys
import time
from contextlib import ExitStack

from sharpi.cli.output.terminal import print_stderr
from sharpi.serve.app import AppSettings, build_app
from sharpi.serve.chat.chat_model import ChatModels
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.host.running_servers import RunningServer, registered
from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import RequestLimits
from sharpi.serve.server_log import ServerLog
from sharpi.serve.web_server import WebServer, is_loopback, url_of
from sharpi.settings.serving import ServeOptions


def serve_until_stopped(
    host: ModelHost, serving: ServeOptions, listener: socket.socket, log: ServerLog
) -> None:
    """Serves until SIGTERM, SIGHUP or Ctrl-C; returns when answers have ended and `host` is closed.

    The handlers of these signals stay in place until closing `host` has written its files.
    """
    status_key, url = secrets.token_urlsafe(32), url_of(listener)
    chats = ChatModels(host)
    asyncio.run(chats.get())  # before any client could have to wait for it
    app = build_app(host, _app_settings(serving, listener, status_key, log), chats)
    server = WebServer(app, host, serving.grace)
    if not serving.api_key and not is_loopback(listener):
        log.line(
            f"warning: anyone who reaches {serving.host} may use this server; --api-key sets a key"
        )
    # asyncio would log each client that disconnects.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with ExitStack() as stack:
        about = RunningServer(os.getpid(), url, host.model_id, int(time.time()), status_key)
        try:
            stack.enter_context(registered(about))
        except OSError as error:
            log.note(f"`sharpi ps` will not list this server: {error}")
        stack.enter_context(server.capture_signals())
        stack.callback(host.close)
        print(f"serving {host.model_id} at {url}", flush=True)
        if sys.stderr.isatty() and sys.stdout.isatty():
            print_stderr("Open it in a browser to chat. Ctrl-C stops the server.")
        server.run(sockets=[listener])


def _app_settings(
    serving: ServeOptions, listener: socket.socket, status_key: str, log: ServerLog
) -> AppSettings:
    """Returns the app's settings; the Host header is checked only if no API key is required."""
    origins = serving.cors_origin
    access = Access(
        keys=serving.api_key,
        origins=origins,
        host_names=None if serving.api_key else (serving.host, socket.gethostname()),
        status_key=status_key,
    )
    limits = None if serving.max_body is None else RequestLimits(serving.max_body)
    return AppSettings(
        access=access,
        limits=limits,
        origins=origins,
        slot_folder=serving.slot_save_path,
        logs_requests=serving.log_requests,
        log=log.note,
    )
