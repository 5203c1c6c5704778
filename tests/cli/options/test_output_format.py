"""`--json-schema`, `--json-object` and `--grammar` of `run` and `chat`, on the model that ships."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine

from sharpi.cli.chat.prompt import ConstrainedAnswers, OutputFormat
from sharpi.resources import demo_model
from sharpi.settings import GenerationRequest, RunConfig, SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["dog", "cat", "b\u00e4r"]},
        "name": {"type": "string", "maxLength": 20},
        "legs": {"type": "integer", "minimum": 0, "maximum": 8},
    },
    "required": ["animal", "name", "legs"],
    "additionalProperties": False,
}


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "animal.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


def check(text: str) -> None:
    animal = json.loads(text)
    assert list(animal) == ["animal", "name", "legs"]
    assert animal["animal"] in ("dog", "cat", "b\u00e4r")
    assert len(animal["name"]) <= 20
    assert type(animal["legs"]) is int
    assert 0 <= animal["legs"] <= 8


@pytest.mark.native
class TestAnswers:
    @pytest.mark.slow
    def test_stories_become_json(self) -> None:
        from sharpi.engine.loader import load_engine

        with load_engine(RunConfig(demo_model(), num_threads=1)) as engine:
            constrained = ConstrainedAnswers(OutputFormat("json_schema", SCHEMA), engine.tokenizer)
            ids = engine.tokenizer.encode("Once upon a time", add_bos=True, parse_special=True)
            session = engine.session()
            for seed in range(12):
                sampling = SamplingParams(seed=seed, temperature=1.5 * (seed % 2))
                session.reset()
                generation = session.generate(
                    ids, GenerationRequest(sampling=sampling), constraint=constrained.constraint("")
                )
                check("".join(generation))
                assert generation.finish_reason == "stop"
                assert constrained.is_complete

    def test_run_prints_the_answer_alone(self, sharpi: CommandLine, schema: str) -> None:
        result = sharpi("run", "--json-schema", schema, "-s", "1", "-t", "1")
        assert result.exit_code == 0
        check(result.out)
        assert "complete" not in result.err

    @pytest.mark.parametrize("command", ["run", "chat"])
    def test_what_a_schema_does_not_enforce_is_noted(
        self, sharpi: CommandLine, tmp_path: Path, command: str
    ) -> None:
        path = tmp_path / "set.json"
        path.write_text('{"type": "array", "items": {"enum": [1]}, "uniqueItems": true}')
        result = sharpi(command, "--json-schema", str(path), "-n", "2", "-t", "1", stdin="Hi\n")
        assert result.exit_code == 0
        assert result.err.count("note: not enforced in the JSON schema: uniqueItems\n") == 1

    def test_run_says_that_n_cut_it_off(self, sharpi: CommandLine, schema: str) -> None:
        result = sharpi("run", "--json-schema", schema, "-n", "3", "-t", "1")
        assert result.exit_code == 0
        assert "note: -n ended the answer before its structure was complete; raise it" in result.err

    def test_a_stop_string_cuts_it_off_too(self, sharpi: CommandLine, schema: str) -> None:
        result = sharpi("run", "--json-schema", schema, "--stop", "name", "-t", "1")
        assert "note: --stop ended the answer before its structure was complete" in result.err

    @pytest.mark.parametrize(
        ("name", "text"),
        [("g.gbnf", 'root ::= "yes" | "no"'), ("g.lark", 'start: "yes" | "no"'),
         ("bnf", 'root ::= "yes" | "no"'), ("other", 'start: "yes" | "no"')],
    )  # fmt: skip
    def test_every_answer_of_a_chat(
        self, sharpi: CommandLine, tmp_path: Path, name: str, text: str
    ) -> None:
        (tmp_path / name).write_text(text)
        result = sharpi("chat", "--grammar", str(tmp_path / name), "-t", "1", stdin="One\nTwo\n")
        assert result.exit_code == 0
        answers = result.out.split()
        assert len(answers) == 2
        assert set(answers) <= {"yes", "no"}

    @pytest.mark.parametrize(
        ("option", "text", "complaint"),
        [
            ("--json-schema", '{"type": "x"}', "Invalid type"),
            ("--json-schema", "[]", "object"),
            ("--grammar", "root ::= (", "line 1"),
            ("--grammar", "start: (", "Expected"),
        ],
    )
    def test_a_form_that_cannot_be_used(
        self, sharpi: CommandLine, tmp_path: Path, option: str, text: str, complaint: str
    ) -> None:
        path = tmp_path / "form"
        path.write_text(text)
        result = sharpi("run", "-m", str(demo_model()), "-p", "Hi", "-t", "1", option, str(path))
        assert result.exit_code == 2
        assert result.out == ""
        (line,) = result.err.splitlines()
        assert line.startswith(f"error: {path}: ")
        assert complaint in line


class TestOptions:
    @pytest.mark.parametrize("command", ["run", "chat"])
    @pytest.mark.parametrize(
        ("flags", "names"),
        [
            (["--json-object", "--grammar", "x"], ["--json-object", "--grammar"]),
            (["--json-schema", "x", "--grammar", "x"], ["--json-schema", "--grammar"]),
            (["--json-schema", "x", "--json-object"], ["--json-schema", "--json-object"]),
        ],
    )
    def test_there_is_one_form(
        self, sharpi: CommandLine, command: str, flags: list[str], names: list[str]
    ) -> None:
        result = sharpi(command, "m.gguf", *flags)
        assert result.exit_code == 2
        (line,) = result.err.splitlines()
        assert all(name in line for name in names)

    def test_two_variables_contradict_too(
        self, sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SHARPI_JSON_OBJECT", "on")
        monkeypatch.setenv("SHARPI_GRAMMAR", "x")
        result = sharpi("run", "m.gguf", "Hi")
        assert result.exit_code == 2
        assert "SHARPI_JSON_OBJECT and SHARPI_GRAMMAR contradict" in result.err

    def test_a_flag_wins_over_a_variable(
        self, sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("SHARPI_JSON_OBJECT", "on")
        result = sharpi("run", "m.gguf", "Hi", "--grammar", str(tmp_path / "absent"))
        assert f"cannot read {tmp_path / 'absent'}" in result.err

    @pytest.mark.parametrize("option", ["--json-schema", "--grammar"])
    @pytest.mark.parametrize(
        ("content", "complaint"), [(None, "cannot read"), (b"\xff", "not UTF-8")]
    )
    def test_files_that_cannot_be_read(
        self,
        sharpi: CommandLine,
        tmp_path: Path,
        option: str,
        content: bytes | None,
        complaint: str,
    ) -> None:
        path = tmp_path / "form"
        if content is not None:
            path.write_bytes(content)
        result = sharpi("run", "m.gguf", "Hi", option, str(path))
        assert result.exit_code == 2
        (line,) = result.err.splitlines()
        assert complaint in line
        assert str(path) in line

    @pytest.mark.parametrize("text", ["{", "[" * 100_000])
    def test_a_schema_that_is_no_json(self, sharpi: CommandLine, tmp_path: Path, text: str) -> None:
        path = tmp_path / "form"
        path.write_text(text)
        result = sharpi("run", "m.gguf", "Hi", "--json-schema", str(path))
        assert result.exit_code == 2
        (line,) = result.err.splitlines()
        assert str(path) in line
