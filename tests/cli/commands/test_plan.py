"""`sharpi plan`: its table, its JSON, its options and their variables, and requests it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, Result
from msgspec.structs import replace

from sharpi.cli.commands import plan as plan_module
from sharpi.experts.profile import ExpertProfile, save_profile
from sharpi.hardware import product_rate
from sharpi.hardware.info import Gpu, GpuDriver, HardwareInfo
from sharpi.resources import demo_model, native_library
from sharpi.settings import RunConfig

pytestmark = pytest.mark.native
LIBRARY = native_library()  # before the environment is cleaned, which may name another build
REFERENCES = Path(__file__).parents[2] / "references" / "data"
MODEL = str(REFERENCES / "qwen3moe.gguf")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def quick(clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The built library, and a short try at the read rate."""
    monkeypatch.setenv("SHARPI_NATIVE_LIBRARY", str(LIBRARY))
    monkeypatch.setattr(product_rate, "measure_product", lambda *about: 20e9)


def record(result: Result) -> dict[str, Any]:
    assert (result.exit_code, result.err) == (0, "")
    decoded: dict[str, Any] = json.loads(result.out)
    return decoded


def total(plan: dict[str, Any], tier: str) -> int:
    return sum(line["num_bytes"] for line in plan["lines"] if line["tier"] == tier)


def test_table_of_a_model_that_fits(sharpi: CommandLine) -> None:
    result = sharpi("plan", MODEL)
    assert (result.exit_code, result.err) == (0, "")
    lines = [line.rstrip() for line in result.out.splitlines()]
    assert lines[0] == f"model    {MODEL}"
    assert "slots    ok" in lines
    assert any(line.startswith("ram   experts") and "no copy" in line for line in lines)
    assert any("bound by RAM read" in line for line in lines)


def test_table_of_three_tiers(sharpi: CommandLine) -> None:
    out = sharpi("plan", "--ram", "14MiB", "--vram", "530MiB", str(demo_model())).out
    assert "530.0 MiB" in out
    assert "disk  experts" in out
    assert "assumed  VRAM read of 400 GB/s: not measured" in out


def test_speed_is_a_range_and_hits_are_the_curve_s(sharpi: CommandLine) -> None:
    out = sharpi("plan", "--moe-slots", "4", str(demo_model())).out
    speed = re.search(r"decode   ([\d.]+) to ([\d.]+) tokens/s, bound by ", out)
    assert speed is not None
    assert float(speed[2]) == pytest.approx(2 * float(speed[1]), abs=0.2)
    assert "hits     about 73 % of a token's experts are found in RAM" in out
    assert "default policy's on routes of GPT-OSS-20B" in out


def test_a_gpu_without_slots_claims_no_hits(sharpi: CommandLine) -> None:
    out = sharpi("plan", "--vram", "520MiB", str(demo_model())).out
    assert "hits     0 % of a token's experts are found in VRAM" in out


@pytest.mark.parametrize(
    ("flags", "model", "why"),
    [
        (("--moe-miss=load",), demo_model(), "all experts are resident"),
        (("--moe-slots=16",), demo_model(), "all experts are resident"),
        (("--moe-slots=4",), REFERENCES / "llama.gguf", "the model has no routed experts"),
        (("--moe-slots=4", "--moe-miss=load"), demo_model(), None),
        ((), demo_model(), None),
    ],
)
def test_a_line_says_where_expert_options_have_no_effect(
    sharpi: CommandLine, flags: tuple[str, ...], model: Path, why: str | None
) -> None:
    notes = record(sharpi("plan", *flags, "--json", str(model)))["notes"]
    lines = [note for note in notes if "--moe options" in note]
    assert lines == ([f"{why}: --moe options have no effect"] if why else [])


def test_hits_by_a_profile(sharpi: CommandLine, tmp_path: Path) -> None:
    path, model = tmp_path / "uses.json", demo_model()
    uses = np.zeros((6, 16), np.int64)
    uses[:, 3:7] = 10
    uses[:, 9] = 5
    save_profile(path, ExpertProfile(model.name, uses))
    plan = record(
        sharpi("plan", "--json", "--moe-slots", "4", "--moe-profile", str(path), str(model))
    )
    assert plan["speed"]["hit_rate"] == pytest.approx(40 / 45)
    assert plan["speed"]["assumptions"] == ["hit rates follow from the profile's uses"]
    absent = sharpi("plan", "--moe-profile", str(tmp_path / "none"), str(model))
    assert (absent.exit_code, absent.out) == (2, "")
    assert "no such file" in absent.err


def test_layers_that_are_alike_share_a_row(sharpi: CommandLine) -> None:
    out = sharpi("plan", "--ram", "18MB", str(demo_model())).out
    rows = [line.split()[0] for line in out.splitlines() if "in slots, the others on disk" in line]
    assert len(rows) == 2
    assert rows[0].startswith("0-")


def test_json_of_the_demo(sharpi: CommandLine) -> None:
    plan = record(sharpi("plan", "--json"))
    assert plan["model"] == str(demo_model())
    assert (plan["status"], plan["fits"], plan["is_mapped"]) == ("ok", True, True)
    assert len(plan["layers"]) == 6
    assert plan["bytes_by_tier"]["ram"] == total(plan, "ram")
    assert all(line["reason"] for line in [*plan["lines"], *plan["layers"]])
    assert plan["speed"]["tokens_per_second"] > 0
    assert {"trunk", "trunk_bytes"} <= plan["layers"][0].keys()
    assert {"card_staging"} <= plan.keys()
    assert {line["purpose"] for line in plan["lines"]} >= {"trunk", "experts"}


def test_json_of_slots(sharpi: CommandLine) -> None:
    plan = record(sharpi("plan", "--json", "--ram", "18MB", str(demo_model())))
    assert total(plan, "ram") <= plan["ram_budget"] == 18_000_000
    assert {layer["experts"] for layer in plan["layers"]} == {"disk"}
    assert all(0 < layer["ram_slots"] < 16 for layer in plan["layers"])
    assert plan["speed"]["bytes_per_token"]["disk read"] > 0
    assert not any("disk" in each for each in plan["speed"]["assumptions"])  # it was measured


def test_what_cannot_fit_is_planned_and_says_so(sharpi: CommandLine) -> None:
    as_json, as_text = (
        sharpi("plan", *flags, "--ram", "1MiB", MODEL) for flags in (["--json"], [])
    )
    assert (as_json.exit_code, as_text.exit_code) == (1, 1)
    assert (as_json.err, as_text.err) == ("", "")
    plan = json.loads(as_json.out)
    assert (plan["fits"], plan["status"]) == (False, "budget-exhausted")
    assert plan["shortfall"] > 0
    assert "does not fit" in as_text.out
    assert "tokens/s" not in as_text.out


def test_a_model_without_experts(sharpi: CommandLine) -> None:
    model = str(REFERENCES / "llama.gguf")
    plan = record(sharpi("plan", "--json", model))
    assert plan["status"] == "empty"
    assert "slots    none, as the model has no routed experts" in sharpi("plan", model).out
    assert {layer["experts"] for layer in plan["layers"]} == {None}


def test_context_costs_memory(sharpi: CommandLine) -> None:
    def kv(size: str) -> int:
        plan = record(sharpi("plan", "--json", "-c", size, MODEL))
        return sum(line["num_bytes"] for line in plan["lines"] if line["purpose"] == "kv")

    assert kv("2048") == 32 * kv("64")


CASES = [
    ("RAM", ["--ram", "2GiB"], 2 << 30, "3GB", 3_000_000_000, "ram", ("x", "-1", "9" * 400)),
    ("VRAM", ["--vram", "1.5k"], 1500, "12 GiB", 12 << 30, "vram", ("big", "1 XB")),
    ("DEVICE", ["--device", "cpu"], "cpu", "cuda", "cuda", "device", ("gpu",)),
    ("GPU_LAYERS", ["-g", "3"], 3, "0", 0, "gpu_layers", ("-2", "few")),
    ("MOE_SLOTS", ["--moe-slots", "3"], 3, "4", 4, "moe_slots", ("0", "-1", "few")),
    ("CPU_MOE", ["--cpu-moe"], True, "on", True, "cpu_moe", ("maybe",)),
    ("N_CPU_MOE", ["--n-cpu-moe", "2"], 2, "3", 3, "num_cpu_moe", ("-1", "x")),
]


@pytest.mark.parametrize(
    ("variable", "flag", "from_flag", "text", "from_variable", "field", "malformed"), CASES
)
def test_options(
    sharpi: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    flag: list[str],
    from_flag: object,
    text: str,
    from_variable: object,
    field: str,
    malformed: tuple[str, ...],
) -> None:
    """A flag, its variable, the flag over the variable, and malformed values of both."""
    seen: list[RunConfig] = []
    really_plan = plan_module.plan_for

    def watch(config: RunConfig, file: Any) -> Any:
        seen.append(config)
        return really_plan(RunConfig(config.model), file)

    monkeypatch.setattr(plan_module, "plan_for", watch)
    sharpi("plan", MODEL, *flag)
    monkeypatch.setenv(f"SHARPI_{variable}", text)
    sharpi("plan", MODEL)
    sharpi("plan", MODEL, *flag)
    values = [getattr(config, field) for config in seen]
    assert values == [from_flag, from_variable, from_flag]
    for value in malformed:
        monkeypatch.setenv(f"SHARPI_{variable}", value)
        result = sharpi("plan", MODEL)
        assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
        assert f"SHARPI_{variable}" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ram", "lots"), ("--ram", "not a size")),
        (("--cpu-moe", "--n-cpu-moe", "2"), ("--cpu-moe", "--n-cpu-moe")),
        (("--device", "cpu", "--vram", "1G"), ("--device", "--vram")),
        (("--device", "cpu", "-g", "2"), ("--device", "--gpu-layers")),
    ],
)
def test_refused(sharpi: CommandLine, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = sharpi("plan", MODEL, *arguments)
    assert (result.exit_code, result.out, result.err.count("\n")) == (2, "", 1)
    assert all(word in result.err for word in words)


def test_a_gpu_that_is_not_there(sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharpi.hardware.info.probe_gpus", lambda: None)
    result = sharpi("plan", MODEL, "--device", "cuda")
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert "--vram" in result.err


def test_the_gpus_free_memory_is_the_default(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sharpi.hardware import info as hardware

    really_probe = hardware.probe_hardware

    def with_gpu(*arguments: Any, **settings: Any) -> HardwareInfo:
        return replace(really_probe(*arguments, **settings), free_vram=600 * MIB)

    monkeypatch.setattr(hardware, "probe_hardware", with_gpu)
    plan = record(sharpi("plan", MODEL, "--device", "cuda", "--json"))
    assert plan["vram_budget"] == 600 * MIB
    assert total(plan, "vram") > 0


def test_two_gpus_that_need_not_exist(sharpi: CommandLine) -> None:
    flags = ("--vram", "600MiB,560MiB", str(demo_model()))
    plan = record(sharpi("plan", "--json", *flags))
    assert plan["vram_budget"] == 1160 * MIB
    assert [gpu["budget"] for gpu in plan["gpus"]] == [600 * MIB, 560 * MIB]
    assert [gpu["first"] for gpu in plan["gpus"]] == [0, plan["gpus"][0]["end"]]
    assert plan["gpus"][-1]["end"] == 6
    out = sharpi("plan", *flags).out
    assert "GPU 0    layers 0-" in out
    assert "of 560.0 MiB" in out
    split = record(sharpi("plan", "--json", *flags, "--tensor-split", "1,2"))
    assert [gpu["first"] for gpu in split["gpus"]] == [0, 2]


def test_named_gpus_are_those_of_the_driver(
    sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = tuple(
        Gpu(f"GPU {i}", size * MIB, size * MIB, "9.0") for i, size in enumerate((560, 600))
    )
    monkeypatch.setattr("sharpi.hardware.info.probe_gpus", lambda: GpuDriver("1", "13.0", gpus))
    plan = record(sharpi("plan", MODEL, "--device", "cuda:1", "--json"))
    assert plan["vram_budget"] == 600 * MIB
    plan = record(sharpi("plan", MODEL, "--device", "cuda:1,0", "--json"))
    assert [gpu["budget"] for gpu in plan["gpus"]] == [600 * MIB, 560 * MIB]
    result = sharpi("plan", MODEL, "--device", "cuda:0,2")
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert "cuda:2 is not there" in result.err


def test_a_draft_model_is_planned_beside_the_model(sharpi: CommandLine) -> None:
    (note,) = (
        each for each in record(sharpi("plan", MODEL, "-md", MODEL, "--json"))["notes"]
        if "draft model" in each
    )  # fmt: skip
    taken, own, other = re.findall(r"[\d.]+ [KM]iB", note)
    assert own == other  # the model drafts for itself here
    alone = record(sharpi("plan", MODEL, "--json"))
    assert not any("draft model" in each for each in alone["notes"])
    assert float(taken.split()[0]) == pytest.approx(total(alone, "ram") / MIB, rel=0.2)


def test_a_draft_model_without_room_is_noted(sharpi: CommandLine) -> None:
    ram = total(record(sharpi("plan", MODEL, "--json")), "ram") + MIB
    result = sharpi("plan", MODEL, "-md", MODEL, "--ram", str(ram))
    assert result.exit_code == 0
    assert "the model and its draft model have no room in RAM together" in result.out
    assert "have no room" not in sharpi("plan", MODEL, "-md", MODEL).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-md", str(demo_model())), "both need the same vocabulary"),
        (("-md", "nope.gguf"), "nope.gguf: no such file"),
        (("-md", MODEL, "--hosts", "x.toml"), "--hosts and --spec-draft-model contradict"),
    ],
)
def test_draft_models_that_are_refused(
    arguments: tuple[str, ...], words: str, sharpi: CommandLine
) -> None:
    result = sharpi("plan", MODEL, *arguments)
    assert (result.exit_code, result.err.count("\n")) != (0, 0)
    assert words in result.err
    assert result.err.count("\n") == 1


def test_missing_model(sharpi: CommandLine, tmp_path: Path) -> None:
    result = sharpi("plan", str(tmp_path / "none.gguf"))
    assert (result.exit_code, result.out, result.err.count("\n")) == (1, "", 1)
