"""The way of a chat completion through the Python code: few files to read, and one queue."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from served_demo import ServedDemo

import sharpi
from sharpi.serve.host.answer_group import AnswerQueue

pytestmark = pytest.mark.native
PACKAGE = Path(sharpi.__file__).parent
# The engine's steps have their own budget (tests/engine/test_decode_path.py), and the reader of
# the model's file is no part of the way.
ENGINE = ("engine", "ops", "gguf")
CLOCK = "serve/web_server.py"  # ticks beside all requests
MOST_FILES = 27
MOST_WITH_ENGINE = 40
BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}


class Trace:
    """The files whose functions are called while it records, by any thread that began after it."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_recording = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if self.is_recording and event == "call" and name.startswith(str(PACKAGE)):
            self.files.add(name)


@pytest.mark.parametrize("streams", [False, True])
def test_a_chat_completion_passes_few_files(
    serve_demo: Callable[..., ServedDemo], streams: bool
) -> None:
    trace = Trace()
    threading.setprofile(trace)
    try:
        server = serve_demo()
        body = BODY | {"stream": streams}
        assert server.client.post("/v1/chat/completions", json=body).status_code == 200
        trace.is_recording = True
        assert server.client.post("/v1/chat/completions", json=body).status_code == 200
    finally:
        trace.is_recording = False
        threading.setprofile(sys.getprofile())
    files = {Path(name).relative_to(PACKAGE) for name in trace.files} - {Path(CLOCK)}
    outside = sorted(str(name) for name in files if name.parts[0] not in ENGINE)
    assert any("engine" in name.parts for name in files), "the engine's thread was not seen"
    assert len(outside) <= MOST_FILES, " ".join(outside)
    assert len(files) <= MOST_WITH_ENGINE, " ".join(sorted(map(str, files)))


def test_all_answers_to_a_request_share_one_queue(
    demo: ServedDemo, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AnswerQueue] = []
    begin = AnswerQueue.__init__

    def counted(self: Any) -> None:
        made.append(self)
        begin(self)

    monkeypatch.setattr(AnswerQueue, "__init__", counted)
    response = demo.client.post("/v1/chat/completions", json=BODY | {"n": 3})
    assert len(response.json()["choices"]) == 3
    assert len(made) == 1
