"""Every option of every command: what its flags and variables mean, and what is refused.

option_meanings.json has, for each flag with a value and each variable, the commands that have it
and the settings that it changes from those without it. The settings of a run are stated after
`complete`, so that what follows from an option is among them.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from fake_engine import FakeEngine
from msgspec import Struct
from msgspec.structs import replace

from sharpi.cli.command import arguments_of, variables_of
from sharpi.cli.program import COMMANDS, function_of, load_command
from sharpi.cli.run_config import complete
from sharpi.settings import USUAL_DRAFTS, GenerationRequest, RunConfig

_TABLE = json.loads((Path(__file__).parents[1] / "option_meanings.json").read_text("utf-8"))
_REQUIRED = {
    "logits": ("m.gguf", "--tokens", "ids.npy", "--output", "o.npy"),
    "perplexity": ("m.gguf", "-f", "t.txt"),
    "launch": ("claude", "m.gguf"),
    "simulate": ("t.npz",),
    "stats": ("s.json",),
    **dict.fromkeys(("tokenize", "inspect"), ("m.gguf",)),
    **dict.fromkeys(("pull", "rm"), ("a/b",)),
    "join": ("h",),
}
_HOSTS = ("--hosts", "a,b")
_OF_HOSTS = (
    *("--link", "--insecure-link", "--remote-experts"),
    *("SHARPI_LINK", "SHARPI_INSECURE_LINK", "SHARPI_REMOTE_EXPERTS"),
)
_WITH_HOSTS = ("run", "chat", "serve", "bench", "perplexity", "logits")
_NAMES = {"serving": "serve", "answer_format": "format", "options": "tests"}
_MALFORMED = {
    "--threads": ("0", "x", "9999", "1.5"),
    "--threads-batch": ("-1", "x"),
    "--batch-size": ("0", "many"),
    "--precision": ("f16",),
    "--kv-type": ("q4_k",),
    "--cache-type-k": ("f32",),
    "--kv-keep": ("63", "x"),
    "--rope-scaling": ("ntk",),
    "--rope-scale": ("0", "nan"),
    "--yarn-orig-ctx": ("0", "x"),
    "--yarn-ext-factor": ("-1", "2"),
    "--yarn-attn-factor": ("0", "inf"),
    "--yarn-beta-fast": ("-1",),
    "--isa": ("sse",),
    "--ctx-size": ("-5", "0", "4k", str(2**40)),
    "--prompt-cache-size": ("-1", "many", "3"),
    "--predict": ("-2", "x"),
    "--temp": ("-1", "nan", "hot", "inf"),
    "--top-p": ("1.1", "-0.1", "nan"),
    "--repeat-penalty": ("0", "-1", "inf"),
    "--presence-penalty": ("inf", "x"),
    "--seed": ("-2", "x", str(2**40)),
    "--spec-type": ("eagle", "none,ngram", ","),
    "--spec-draft-n-max": ("-1", "99", "x"),
    "--spec-draft-p-min": ("-1", "1.5", "nan"),
    "--load": ("mmap",),
    "--ram": ("x", "9" * 400, "-1"),
    "--vram": ("1 XB", "1GiB,", "1GiB,x"),
    "--tensor-split": ("0,0", "3,-1", "half", "1,nan"),
    "--device": ("gpu", "cuda:0,0", "cuda:99999", "cuda:", "CPU0"),
    "--gpu-layers": ("-2", "1.5", "many", str(2**40)),
    "--moe-slots": ("0", "few"),
    "--n-cpu-moe": ("-1", "x"),
    "--moe-policy": ("best", "LRU"),
    "--moe-load-budget": ("-1", "nan", "inf", "x"),
    "--moe-warmpin-after": ("-1", "1.5", str(2**40)),
    "--moe-resident": ("all", "1,2"),
    "--moe-resident-ids": ("x", "-1", "7-0", ",", "1.5", "1234567"),
    "--moe-miss": ("gpu", "CPU"),
    "--moe-capacity-factor": ("0", "-1", "nan", "inf", "x"),
    "--moe-paged-stash-page-size": ("0", "1.5", "x", str(2**40)),
    "--moe-paged-stash-cpu-factor": ("-0.1", "nan", "inf", "x"),
    "--disable": ("everything", "graphs,flash"),
    "--hosts": ("alone", "a,", "a:x,b"),
}
MALFORMED = [(flag, text) for flag, texts in _MALFORMED.items() for text in texts]
MALFORMED_SWITCHES = ("SHARPI_CONTEXT_SHIFT", "SHARPI_CPU_MOE", "SHARPI_TRACE_VRAM")


def meaning(command: str, *arguments: str) -> dict[str, Any]:
    """Returns the settings that a command gets, by name, as JSON holds them."""
    loaded = load_command(command)
    function = function_of(COMMANDS[command])
    with loaded.make_context(command, [*_REQUIRED.get(command, ()), *arguments]) as context:
        given = arguments_of(function, dict(context.params))
        for name, value in given.items():
            if isinstance(value, RunConfig):
                config = complete(context, value, Path("m.gguf"))
                if command == "plan":
                    experts = replace(config.experts, profile=given["moe_profile"])
                    config = replace(config, experts=experts)
                given[name] = config
    settings = dict(
        pair for name, value in given.items() for pair in flat(value, _name(name, value))
    )
    return {name: value for name, value in settings.items() if name != "config.model"}


def _name(name: str, value: Any) -> str:
    return _NAMES.get(name, name) if isinstance(value, Struct) else f"own.{name}"


def flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Struct):
        for each in value.__struct_fields__:
            yield from flat(getattr(value, each), f"{name}.{each}")
    elif isinstance(value, Path):
        yield name, f"path:{value}"
    else:
        yield name, list(value) if isinstance(value, tuple) else value


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_means_what_it_always_meant(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, defaults = meaning(command), dict(_TABLE["defaults"][command])
    if command != "run":  # what is as for run is left out
        run = _TABLE["defaults"]["run"]
        defaults = {n: run[n] for n in usual if n in run and n.startswith("config.")} | defaults
    assert usual == defaults
    with_hosts = meaning(command, *_HOSTS) if command in _WITH_HOSTS else {}
    tried = set()
    for given, rows in _TABLE["meanings"].items():
        for changes in [changes for commands, changes in rows if command in commands]:
            name, _, value = given.partition("=" if given.startswith("SHARPI_") else " ")
            tried.add(name)
            needs_hosts = command in _WITH_HOSTS and name in _OF_HOSTS
            hosts = _HOSTS if needs_hosts else ()
            if name.startswith("SHARPI_"):
                monkeypatch.setenv(name, value)
                found = meaning(command, *hosts)
                monkeypatch.delenv(name)
            else:
                found = meaning(command, *hosts, name, *([value] if value else []))
            before = with_hosts if needs_hosts else usual
            changed = {name: each for name, each in found.items() if before.get(name, "-") != each}
            assert json.loads(json.dumps(changed)) == changes, given
    options = [each for each in load_command(command).params if each.param_type_name == "option"]
    known = {name for each in options for name in (*each.opts, *each.secondary_opts)}
    known |= {name for each in options for name in variables_of(each)}
    assert known - tried == {"-h"}, "add new options to option_meanings.json"


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "text"), MALFORMED)
def test_malformed_values_are_refused_in_one_line_that_names_them(
    sharpi: CommandLine, engine: FakeEngine, flag: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = sharpi("run", "m.gguf", "hi", flag, text)
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert flag in result.err
    variable = "SHARPI_" + flag[2:].replace("-", "_").upper()
    monkeypatch.setenv(variable, text)
    result = sharpi("run", "m.gguf", "hi")
    assert (result.exit_code, result.err.count("\n")) == (2, 1)
    assert variable in result.err
    assert repr(text)[:50] in result.err
    assert engine.config is None


@pytest.mark.parametrize("variable", MALFORMED_SWITCHES)
def test_switches_are_on_or_off(
    sharpi: CommandLine, engine: FakeEngine, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "maybe")
    result = sharpi("run", "m.gguf", "hi")
    assert result.exit_code == 2
    assert f"variable {variable}: 'maybe' is neither 'on' nor 'off'" in result.err


def test_a_flag_overrides_its_variable(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARPI_TEMP", "warm")  # is not even read
    monkeypatch.setenv("SHARPI_CONTEXT_SHIFT", "on")
    arguments = ("run", "m.gguf", "hi", "--temperature", "0.5", "--no-context-shift")
    assert sharpi(*arguments).exit_code == 0
    assert engine.requests[-1].sampling.temperature == 0.5
    assert not engine.config.context_shift
    monkeypatch.setenv("SHARPI_TEMP", "")  # an empty variable is unset
    sharpi("run", "m.gguf", "hi")
    assert engine.requests[-1] == GenerationRequest()


def test_defaults_are_those_of_the_settings(sharpi: CommandLine, engine: FakeEngine) -> None:
    sharpi("run", "m.gguf", "hi")
    assert engine.config == RunConfig(model=Path("m.gguf"), speculation=USUAL_DRAFTS)
    assert engine.requests[-1] == GenerationRequest()


def test_stop_repeats_and_its_variable_has_one_per_line(
    sharpi: CommandLine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharpi("run", "m.gguf", "hi", "--stop", "a,b", "--stop", "c")
    assert engine.requests[-1].stop == ("a,b", "c")
    monkeypatch.setenv("SHARPI_STOP", "User: a,b\nEnd\n")
    sharpi("run", "m.gguf", "hi")
    assert engine.requests[-1].stop == ("User: a,b", "End")


def test_every_flag_of_run_has_a_variable_that_is_documented() -> None:
    options = [each for each in load_command("run").params if each.param_type_name == "option"]
    names = [variables_of(each) for each in options if each.opts != ["-h"]]
    assert () not in names
    text = (Path(__file__).parents[3] / "docs" / "flags.md").read_text("utf-8")
    assert [each for names_of in names for each in names_of if f"`{each}`" not in text] == []
    assert not [each for each in os.environ if each.startswith("SHARPI_")]
