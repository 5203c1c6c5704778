"""The check of a GPU: steps with limits, their output, and the text of the report."""

import json
import os
import socket
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from gpu import models
from gpu.check import _hold_together, _pack_logs
from gpu.check_report import aims, write_report
from gpu.check_residency import residency_aims, residency_lines
from gpu.check_sanitizer import read_output
from gpu.check_step import ROOT, Findings, Outcome, Step, run_step, without_places
from gpu.check_steps import (
    PART_SECONDS,
    PARTS,
    Choice,
    build_step,
    seconds_of,
    steps,
    unused_sets,
)
from gpu.check_tests import GPU_TESTS, finish_results, pytest_command, read_results
from gpu.facts import look_at_packages
from gpu.llama_bench import read_rows

PYTHON = sys.executable
SCRIPTS = Path(__file__).parents[2] / "bench-scripts"


def script_step(text: str, seconds: float = 20.0, has_findings: bool = False) -> Step:
    return Step("some", "some step", (PYTHON, "-c", text), seconds, has_findings)


def run(step: Step, folder: Path, left: float = 100.0) -> Outcome:
    return run_step(step, folder, {}, left)


def test_a_step_that_ends_well(tmp_path: Path) -> None:
    outcome = run(script_step("print('fine')"), tmp_path)
    assert (outcome.status, outcome.findings.failures) == ("passed", [])


def test_a_step_that_fails_shows_its_last_lines(tmp_path: Path) -> None:
    outcome = run(script_step("raise SystemExit('no such thing in /home/some/file.py')"), tmp_path)
    assert outcome.status == "failed"
    assert outcome.findings.failures == ["exit status 1: no such thing in file.py"]


def test_an_error_of_sharpi_is_shown_without_its_traceback(tmp_path: Path) -> None:
    text = "from sharpi.errors import DeviceError; raise DeviceError('there is no driver')"
    step = script_step(f"import sys; sys.path.insert(0, {str(SCRIPTS.parent)!r}); {text}")
    assert run(step, tmp_path).findings.failures == ["exit status 1: there is no driver"]


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    outcome = run(Step("some", "some step", ("no-such-program",), 20.0), tmp_path)
    assert outcome.status == "failed"
    assert "No such file" in outcome.findings.failures[0]


def test_a_step_ends_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "still-alive"
    child = f"import time, pathlib; time.sleep(5); pathlib.Path({str(mark)!r}).touch()"
    text = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    outcome = run(script_step(text), tmp_path, left=3.1)
    assert not mark.exists()
    assert outcome.findings.failures == ["took longer than 3 s"]
    time.sleep(2.2)
    assert not mark.exists()


def test_no_step_begins_without_time(tmp_path: Path) -> None:
    outcome = run(script_step("print()"), tmp_path, left=1.0)
    assert (outcome.status, outcome.seconds) == ("failed", 0)
    assert "not begun" in outcome.findings.failures[0]


FINDING = """
import json, sys
from pathlib import Path
found = {{"figures": {{"a": 1}}, "failures": {failures}, "notes": {notes}, "is_skipped": {skipped}}}
Path(sys.argv[2]).write_text(json.dumps(found))
sys.exit({status})
"""


@pytest.mark.parametrize(
    ("failures", "skipped", "status", "expected"),
    [
        ([], False, 0, "passed"),
        ([], True, 0, "skipped"),
        (["off by 3"], False, 1, "failed"),
        (["off by 3"], True, 1, "failed"),
    ],
)
def test_findings_decide(
    tmp_path: Path, failures: list[str], skipped: bool, status: int, expected: str
) -> None:
    text = FINDING.format(failures=failures, notes=["so it is"], skipped=skipped, status=status)
    outcome = run(script_step(text, has_findings=True), tmp_path)
    assert (outcome.status, outcome.findings.failures) == (expected, failures)
    assert outcome.findings.figures == {"a": 1}


def test_findings_are_kept_when_the_program_breaks_later(tmp_path: Path) -> None:
    text = FINDING.format(failures=[], notes=[], skipped=False, status=3)
    outcome = run(script_step(text, has_findings=True), tmp_path)
    assert outcome.status == "failed"
    assert outcome.findings.figures == {"a": 1}
    assert outcome.findings.failures[0].startswith("exit status 3")


@pytest.mark.parametrize("text", ['{"figures": {}', "[1]", '{"rows": 1}'])
def test_findings_that_are_none(tmp_path: Path, text: str) -> None:
    program = f"import pathlib, sys; pathlib.Path(sys.argv[2]).write_text({text!r})"
    outcome = run(script_step(program, has_findings=True), tmp_path)
    assert outcome.status == "failed"
    assert outcome.findings.failures[0].startswith("its findings cannot be read")


def test_no_place_is_named() -> None:
    text = f"/home/me/models/model.gguf on {socket.gethostname()}:\n 5/6 of http://a.b/c/d"
    assert without_places(text) == "model.gguf on this machine: 5/6 of http://a.b/c/d"


def test_what_the_sanitizer_says() -> None:
    clean, found, broken = Findings(), Findings(), Findings()
    read_output(clean, 0, "done\n========= ERROR SUMMARY: 0 errors\n")
    assert (clean.failures, clean.notes) == ([], ["0 errors"])
    fault = "========= Invalid __global__ read of size 4 bytes\n=========     at matvec_q4_k+0x10\n"
    read_output(found, 86, fault * 3 + "========= ERROR SUMMARY: 3 errors\n")
    assert found.failures == ["Invalid __global__ read of size 4 bytes"]
    assert found.notes == ["3 errors"]
    read_output(broken, 1, "Traceback\n  line\nImportError: no cupy\n")
    assert broken.failures == ["exit status 1: Traceback /   line / ImportError: no cupy"]


TEST_FILE = """
import pytest

def test_a(): pass
def test_b(): assert 1 == 2
@pytest.mark.skip(reason="no GPU")
def test_c(): pass
@pytest.fixture
def broken(): raise ValueError("no memory")
def test_d(broken): pass
"""


def results_of(folder: Path, *texts: str) -> Path:
    """Runs pytest with the plug-in over files with these texts."""
    for number, text in enumerate(texts):
        (folder / f"test_{number}.py").write_text(text)
    path = folder / "results"
    path.touch()
    command = [*pytest_command(str(folder), (), "not gpu"), "-p", "no:xdist", "--rootdir", "."]
    command = [each for each in command if each not in ("-n", "2", "1", "4", "8")]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**own, "SHARPI_RESULT_LINES": str(path), "PYTHONPATH": str(SCRIPTS)}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    return path


@pytest.mark.slow
def test_what_the_tests_say(tmp_path: Path) -> None:
    """A file that cannot be imported is one failure; the other files run."""
    path = results_of(tmp_path, "import no_such_package", TEST_FILE)
    findings = Findings()
    read_results(findings, path)
    finish_results(findings)
    assert findings.figures == {"passed": 1, "failed": 3, "skipped": 1}
    reasons = sorted(line.rpartition(": ")[2] for line in findings.failures)
    assert reasons == ["No module named 'no_such_package'", "assert 1 == 2", "no memory"]
    assert any("was skipped: " in note and "no GPU" in note for note in findings.notes)


def test_what_had_ended_before_a_kill(tmp_path: Path) -> None:
    path, findings = tmp_path / "results", Findings()
    path.write_text('{"name": "a", "outcome": "passed", "reason": ""}\n{"name": "b", "outc')
    read_results(findings, path)
    assert findings.figures["passed"] == 1
    nothing = Findings()
    read_results(nothing, path)
    finish_results(nothing)
    assert nothing.failures == ["no test ran on the GPU"]


def test_the_tests_are_named_and_run_once() -> None:
    root = SCRIPTS.parent
    assert all((root / place).is_dir() for place in GPU_TESTS)
    command = pytest_command("tests/cuda", ("tests/cuda/launchers", "tests/device"), "gpu")
    assert "--ignore=tests/cuda/launchers" in command
    assert "--ignore=tests/device" not in command


def test_each_model_has_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What one of them finds is kept, whatever becomes of the others."""

    def run_one(step: Step, folder: Path, environment: dict[str, str], left: float) -> Outcome:
        found = Findings(figures={step.name: {"f32 prefill": 0.0}})
        if step.name == "gemma3":
            found.failures.append("took longer than 40 s")
        return Outcome(step.name, step.title, "passed", 1.0, found)

    monkeypatch.setattr(models, "run_step", run_one)
    path = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["models.py", "graph", "--json", str(path)])
    with pytest.raises(SystemExit, match="1"):
        models.main()
    found = json.loads(path.read_text())
    assert set(found["figures"]) == {"llama", "qwen3moe", "gemma3", "gpt-oss"}
    assert found["failures"] == ["gemma3: took longer than 40 s"]


def test_a_package_that_is_missing_skips_its_steps(tmp_path: Path) -> None:
    step = Step(
        "some", "some step", (PYTHON, "-c", ""), 20.0, False, ("json", "no_such", "nor_this")
    )
    outcome = run(step, tmp_path)
    assert (outcome.status, outcome.findings.notes) == ("skipped", ["without no_such, nor_this"])


def test_missing_wheels_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = Findings()
    look_at_packages(findings, ("json", "no_such"))
    assert findings.failures[0].startswith("missing: no_such; put their wheels into a folder for")
    for name in ("msgspec", "yaml"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "gguf"]:
        monkeypatch.delitem(sys.modules, name)
    look_at_packages(findings, ("msgspec", "gguf", "yaml"))
    assert "missing: msgspec, pyyaml; " in findings.failures[1], "gguf is there, but needs yaml"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"--python-version {version} msgspec pyyaml`" in findings.failures[1]


def test_what_was_made_is_not_made_again(tmp_path: Path) -> None:
    made = tmp_path / "model"
    text = f"import pathlib; p = pathlib.Path({str(made)!r}); p.write_text(p.exists() * 'x' + 'y')"
    first = Step("m", "a model", (PYTHON, "-c", text), 20, False, makes=made, made_of="layers 2")
    assert run(first, tmp_path).status == "passed"
    again = run(first, tmp_path)
    assert (again.status, again.findings.notes) == ("passed", ["made by an earlier call"])
    assert made.read_text() == "y"
    run(replace(first, made_of="layers 3"), tmp_path)
    assert made.read_text() == "xy"


def test_a_failure_leaves_nothing_that_looks_made(tmp_path: Path) -> None:
    made = tmp_path / "model"
    text = f"import pathlib; pathlib.Path({str(made)!r}).touch(); raise SystemExit(1)"
    step = Step("m", "a model", (PYTHON, "-c", text), 20, False, makes=made, made_of="x")
    assert run(step, tmp_path).status == "failed"
    assert not step.is_done


def test_each_part_has_the_time_that_its_steps_may_take() -> None:
    choice = Choice(Path("work"), is_dry=False, shape=(), experts=128)
    everything = {step.name for step in steps(choice)}
    assert everything == {"packages", "build"}.union(*(names for _, names in PARTS.values()))
    assert sum(step.seconds for step in steps(choice)) <= 4 * PART_SECONDS
    for part in PARTS:
        assert sum(step.seconds for step in steps(choice, part)) <= PART_SECONDS < 540


def test_a_build_by_few_cores_has_a_part_of_its_own() -> None:
    """The whole check, and part 0, give the build more time than parts with a GPU can."""
    choice = Choice(Path("work"), is_dry=False, shape=(), experts=128)
    limits = {
        part: next(step.seconds for step in steps(choice, part) if step.name == "build")
        for part in (None, *PARTS)
    }
    assert min(limits[None], limits[0]) >= 3 * max(limits[part] for part in PARTS if part)
    first, *others = steps(choice, 0)
    assert [step.name for step in others] == ["build", "synthetic", "skewed"]
    assert (first.name, first.command[-1]) == ("packages", "--only-packages")


def test_a_dry_run_has_time_to_compile_its_kernels() -> None:
    real, dry = (Choice(Path("work"), is_dry, (), experts=8) for is_dry in (False, True))
    limits = {step.name: step.seconds for step in steps(real)}
    assert all(step.seconds > 5 * limits[step.name] for step in steps(dry))
    for part in (None, *PARTS):
        assert sum(step.seconds for step in steps(dry, part)) <= seconds_of(part, is_dry=True)


def test_only_the_sets_that_a_machine_chooses_are_optimised() -> None:
    avx2 = {"avx2", "fma", "f16c", "bmi2", "avx_vnni"}
    avx512 = avx2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
    assert unused_sets(avx512) == ("sse41", "avx2", "avx_vnni")
    assert unused_sets(avx2) == ("sse41", "avx512", "avx512_vbmi", "avx512_bf16")
    assert unused_sets({"asimd"}) == ()
    step = build_step(Choice(Path("w"), False, (), 8), 10, ("sse41", "avx2"))
    assert "'-DSHARPI_UNUSED_SETS=sse41;avx2'" in step.command[-1]
    assert "SHARPI_UNUSED_SETS" in (ROOT / "kernels/cpu/CMakeLists.txt").read_text()


def test_logs_are_packed(tmp_path: Path) -> None:
    outcome = run(script_step("print('line ' * 1000)"), tmp_path)
    path = tmp_path / "logs.tar.gz"
    _pack_logs([outcome, decoded("never began", [])], tmp_path, path)
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["some.log"]


def test_the_steps_and_their_order() -> None:
    choice = Choice(Path("work"), is_dry=False, shape=("--layers", "4"), experts=128, ram="64GB")
    found = {step.name: step for step in steps(choice)}
    assert list(found) == [
        "packages", "build", "first", "compile", "graph", "tests", "references", "types", "kernels",
        "synthetic", "resident", "again", "quarter", "skewed", "residency", "llama_cpp", "memcheck",
        "racecheck",
    ]  # fmt: skip
    assert found["synthetic"].command[-2:] == ("--layers", "4")
    assert found["quarter"].command[-2:] == ("--moe-slots", "32")
    assert found["resident"].command[-2:] == ("--ram", "64GB")
    assert found["residency"].command[-4:] == ("--experts", "128", "--ram", "64GB")
    assert found["skewed"].command[-4:] == ("--layers", "12", "--skew", "0.5")
    assert not any("--dry-run" in step.command for step in found.values())
    dry = list(steps(Choice(Path("work"), True, (), experts=8)))
    scripts = [s for s in dry if s.name not in ("build", "synthetic", "skewed")]
    assert all(step.command[-1] == "--dry-run" for step in scripts)
    assert "compile" not in {step.name for step in dry}


def decoded(name: str, tokens: list[int]) -> Outcome:
    return Outcome(name, name, "passed", 1.0, Findings(figures={"tokens": tokens}))


def test_greedy_tokens_are_held_together() -> None:
    tokens: dict[str, list[int]] = {}
    for name, found, status in (
        ("resident", [1, 2], "passed"),
        ("again", [1, 2], "passed"),
        ("quarter", [1, 3], "failed"),
    ):
        outcome = decoded(name, found)
        _hold_together(outcome, tokens)
        assert outcome.status == status
    assert outcome.findings.failures == ["greedy tokens are not those of the step 'resident'"]


def kernel_row(kernel: str, percent: float, tokens: int = 1) -> dict[str, object]:
    return {
        "kernel": kernel,
        "quant_type": "Q4_K",
        "shape": "8 of 768 x 2048",
        "tokens": tokens,
        "num_bytes": 1,
        "microseconds": 4.0,
        "gigabytes_per_second": 100.0,
        "percent": percent - 10,
        "percent_without_start": percent,
    }


def bench_row(test: str, percent: float | None) -> dict[str, object]:
    return {
        "test": test,
        "tokens_per_second": 100.0,
        "deviation": 1.0,
        "gigabytes_per_second": 10.0,
        "percent_of_limit": percent,
        "read_limit_gigabytes_per_second": percent and 20.0,
        "launches_per_token": 700,
    }


def figures() -> dict[str, dict[str, object]]:
    facts = {
        "gpu": "Some GPU 9000",
        "driver": "580.1",
        "driver_cuda": 13000,
        "cuda": 12090,
        "compute_capability": "90",
        "multiprocessors": 132,
        "total_vram": 140 * 10**9,
        "l2_bytes": 50 * 10**6,
        "packages": {"numpy": "2.0"},
        "python": "3.11",
        "commit": "abc",
    }
    kernels = {
        "read_gigabytes_per_second": 4000.0,
        "bus_gigabytes_per_second": 50.0,
        "start_microseconds": 1.0,
        "rows": [kernel_row("experts gate_up", 95), kernel_row("experts down", 85)],
    }
    decode = {
        "load_seconds": 9.0,
        "vram_bytes": 18 * 10**9,
        "vram_slots": [128, 128],
        "rows": [bench_row("pp512", 3.0), bench_row("tg128", 61.0)],
    }
    return {
        "packages": facts,
        "kernels": kernels,
        "resident": decode,
        "references": {"llama": {"f32 decode": 1e-5}, "qwen3": {"f32 decode": 2e-5}},
    }


def test_aims() -> None:
    assert [met for _, _, met in aims(figures())] == [True, False, True]
    assert list(aims({})) == []


def test_the_report(tmp_path: Path) -> None:
    outcomes = [
        Outcome(name, f"step {name}", "passed", 2.0, Findings(figures=each))
        for name, each in figures().items()
    ]
    outcomes.append(Outcome("memcheck", "memcheck", "skipped", 0, Findings(notes=["not there"])))
    outcomes.append(Outcome("types", "types", "failed", 1, Findings(failures=["a | b", "c"])))
    path = write_report(outcomes, tmp_path, 100.0, is_dry=False)
    assert path.name == "gpu-check-some-gpu-9000.md"
    text = path.read_text()
    for line in (
        "# GPU check: Some GPU 9000",
        "4 of 6 steps passed in 100 s: some of it failed.",
        "| types | failed | 1 | a \\| b (and 1 more) |",
        "| memcheck | skipped | 0 | not there |",
        "| the CPU, f32 decode | 2.0e-05 | qwen3 |",
    ):
        assert line in text.splitlines()
    assert "CUDA 12.9" in text
    assert "| met |" in text
    data = json.loads(path.with_suffix(".json").read_text())
    assert (data["passed"], len(data["aims"]), len(data["steps"])) == (False, 3, 6)


def decoded_row(mode: str, milliseconds: float, hits: float | None = 0.7) -> dict[str, object]:
    return {
        "mode": mode,
        "seconds": milliseconds / 1e3,
        "hit_rate": hits,
        "bus_bytes": None if hits is None else 60e6,
        "fastest": "bus" if mode == "auto" else None,
    }


def residency() -> dict[str, object]:
    """Figures of a quarter of experts in VRAM: 2 ms a token, 5 without a graph, 8 on the CPU."""
    modes = {"bus": 2.0, "cpu": 4.0, "bus without a graph": 5.0, "auto": 2.05}
    prompt = {"tokens": 2048, "seconds": 0.1, "must_cross_bytes": 4.5e9}
    on_cpu = {"tokens": 2048, "seconds": 0.5, "must_cross_bytes": 0}
    quarter = {
        "percent": 25,
        "slots": [32, 32],
        "decode": [decoded_row(mode, each) for mode, each in modes.items()],
        "prefill": [prompt],
    }
    none = {
        "percent": None,
        "slots": [0, 0],
        "decode": [decoded_row("cpu", 8.0, 0.0)],
        "prefill": [on_cpu],
    }
    whole = {
        "percent": 100,
        "slots": [128, 128],
        "decode": [decoded_row("none", 1.0, None)],
        "prefill": [prompt | {"must_cross_bytes": 0}],
    }
    return {"bus_bytes_per_second": 50e9, "loads": [quarter, none, whole]}


LLAMA_BENCH = """[{"n_prompt": 2048, "n_gen": 0, "avg_ts": 30000.0, "backends": "CUDA"},
 {"n_prompt": 0, "n_gen": 128, "avg_ts": 300.5}]"""


def test_aims_of_some_experts_in_vram() -> None:
    rows = {"rows": read_rows(LLAMA_BENCH, 25, 9)}
    found = list(residency_aims(residency(), rows))
    assert [(value, met) for _, value, met in found] == [
        ("2.44 times bus without a graph", True),
        ("1.02 times the seconds of bus", True),
        ("90 %", True),
        ("5.00 times", True),
        ("0.68 times", False),
    ]
    assert list(residency_aims({}, {})) == []


def test_tables_of_some_experts_in_vram() -> None:
    lines = list(residency_lines(residency(), {"rows": read_rows(LLAMA_BENCH, 25, 9)}))
    for line in (
        "| 25 % | 32 | auto: bus | 487.8 | 2.05 | 1.05 | 70.0 % | 60.0 |",
        "| none: the CPU has all | 0 | cpu | 125.0 | 8.00 | 7.00 | 0.0 % | 60.0 |",
        "| 25 % | 2048 | 20480 | 100.0 | 4.50 | 90 % |",
        "| 100 % | 2048 | 20480 | 100.0 | 0.00 |  |",
        "| 25 % | 9 | tg128 | 300.5 |",
    ):
        assert line in lines
    assert any("llama.cpp was not measured" in line for line in residency_lines(residency(), {}))
    assert list(residency_lines({}, {})) == []


def test_a_report_of_nothing(tmp_path: Path) -> None:
    outcome = Outcome("packages", "packages", "failed", 1.0, Findings(failures=["missing: cupy"]))
    path = write_report([outcome], tmp_path, 1.0, is_dry=False)
    assert path.name == "gpu-check-no-gpu.md"
    assert "missing: cupy" in path.read_text()


def test_a_report_of_one_part(tmp_path: Path) -> None:
    outcome = Outcome(
        "packages", "packages", "passed", 1.0, Findings(figures=figures()["packages"])
    )
    path = write_report([outcome], tmp_path, 1.0, is_dry=False, part=2)
    assert path.name == "gpu-check-some-gpu-9000-part-2.md"
    assert json.loads(path.with_suffix(".json").read_text())["part"] == 2
