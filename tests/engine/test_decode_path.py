"""The way of a command and of one decoded token through the Python code: few files to read."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import sharpi
from sharpi.engine.engine import Engine
from sharpi.ops.cpu.program import Program
from sharpi.resources import demo_model
from sharpi.settings import GenerationRequest, SamplingParams

pytestmark = pytest.mark.native
PACKAGE = str(Path(sharpi.__file__).parent)
MOST_FRAMES, MOST_FILES = 9, 10
MOST_FILES_OF_RUN = 110  # whose functions `sharpi run` enters before it prints its first token
RUN = """
import sys
import threading
from pathlib import Path
import sharpi
package, files, printed = str(Path(sharpi.__file__).parent), set(), []
def count(frame, event, argument):
    code = frame.f_code
    if event == "c_call" and getattr(argument, "__self__", None) is sys.stdout:
        printed.append(argument.__name__ == "write")
    if event == "call" and code.co_flags & 2 and code.co_filename.startswith(package):
        if True not in printed:
            files.add(code.co_filename)  # flag 2: a function, not a module or the body of a class
threading.setprofile(count)
sys.setprofile(count)
from sharpi.cli.main import main
status = main(["run", sys.argv[1], "-n", "2", "hello"])
sys.setprofile(None)
assert True in printed
sys.stderr.write("\\n" + "\\n".join(sorted(files)))
sys.exit(status)
"""


class Trace:
    """The files whose functions are called until `Program.run`, and the calls open by then."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.frames: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if self.frames or event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            self.files.add(code.co_filename)
        if code is Program.run.__code__:
            self.frames = _open_calls(frame)


def _open_calls(frame: FrameType | None) -> list[str]:
    """Returns the package's open calls, innermost first."""
    names = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return names


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 0.8, "seed": 1}])
@pytest.mark.parametrize("case", ["qwen3moe", "qwen3next"])
def test_a_decoded_token_passes_few_frames_and_files(
    case: str, sampling: dict[str, float], load: Callable[..., Engine]
) -> None:
    request = GenerationRequest(
        max_tokens=20,
        ignore_end=True,
        sampling=SamplingParams(**sampling),  # type: ignore[arg-type]
    )
    generation = load(case).session().generate([5, 17, 99], request)
    while len(generation.ids) < 4:
        next(generation)
    trace = Trace()
    sys.setprofile(trace)
    try:
        next(generation)
    finally:
        sys.setprofile(None)
    assert trace.frames[0] == "Program.run"
    assert trace.frames[-1] == "Generation.__next__"
    assert len(trace.frames) <= MOST_FRAMES, trace.frames
    assert len(trace.files) <= MOST_FILES, sorted(trace.files)


@pytest.mark.slow
def test_run_enters_few_files_before_its_first_token() -> None:
    command = [sys.executable, "-c", RUN, str(demo_model())]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    files = [line for line in run.stderr.splitlines() if line.startswith(PACKAGE)]
    assert run.stdout.strip()
    assert any(name.endswith("engine/loader.py") for name in files), run.stderr
    assert len(files) <= MOST_FILES_OF_RUN, files
