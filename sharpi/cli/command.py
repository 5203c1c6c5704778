"""Builds the Typer command of a function whose parameters are settings, or structs of settings."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand
from typer.main import get_command

from sharpi.cli.output.terminal import supports_styles
from sharpi.settings.option import Field, Only, Without, all_fields, settings_of, switch

_WIDEST_CHOICES = 50  # characters; the help of more choices lists them in its text

Function = Callable[..., None]
USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # Typer exports no name for it

PLAIN_GROUP = "Options"
# Groups in the order of the help: those with good defaults, or that few users set, come last.
_GROUPS = (
    *("Arguments", PLAIN_GROUP, "Tests", "Server", "Length", "Sampling", "Structured output"),
    *("Conversation", "Context", "Memory", "Speculation", "Several machines", "RoPE scaling"),
    *("Machine", "Experts", "Experts not on the GPU", "Finding a fault"),
)
# The options that `-h` shows of a command with many; one with few shows all.
_EVERYDAY = (
    *("ctx_size", "threads", "ram", "vram", "predict", "temp", "seed", "system", "think"),
    *("json_schema", "prompt_file", "as_json", "host", "port", "api_key", "alias", "parallel"),
    *("continues", "resume", "n_prompt", "n_gen", "n_depth", "repetitions"),
)
_FEW_OPTIONS = 15
_IS_SHORT = "sharpi.is_short"


class BrokenStdout(Exception):
    """Raised if the reader of stdout closed the pipe; Typer would exit with 1 instead."""


class Command(TyperCommand):
    """A command whose help lists its options by groups."""

    examples: Sequence[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; an error knows the command."""
        if not ctx.resilient_parsing:
            args = _in_own_flags(args, self.get_params(ctx))
        try:
            return super().parse_args(ctx, args)
        except USAGE_ERROR as error:
            error.ctx = error.ctx or ctx
            raise

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; ends the terminal's line after ^C."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise BrokenStdout from error
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                print(file=sys.stderr)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes a section for each group; of many options in the short help few."""
        sections: dict[str, list[tuple[str, str]]] = {}
        options = [each for each in self.params if each.param_type_name == "option"]
        is_cut = ctx.meta.get(_IS_SHORT) and len(options) > _FEW_OPTIONS
        for parameter in self.get_params(ctx):
            if is_cut and parameter in options and parameter.name not in _EVERYDAY:
                continue
            if record := parameter.get_help_record(ctx):
                sections.setdefault(group_of(parameter), []).append(record)
        for name, records in sections.items():
            with formatter.section(heading(name)):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Writes the examples."""
        write_examples(self.examples, formatter)


def _in_own_flags(arguments: list[str], parameters: Sequence[Any]) -> list[str]:
    """Returns the arguments with the flags of other programs replaced, if there are any."""
    options = [each for each in parameters if each.param_type_name == "option"]
    takes_value = {
        name: not each.is_flag for each in options for name in (*each.opts, *each.secondary_opts)
    }
    flags = [each.partition("=")[0] for each in arguments if each.startswith("-")]
    if all(flag in takes_value for flag in flags):
        return arguments
    from sharpi.cli.other_programs import translated

    return translated(arguments, takes_value)


def write_examples(examples: Sequence[str], formatter: Any) -> None:
    """Writes the examples, a line each."""
    if examples:
        with formatter.section(heading("Examples")):
            for line in examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def group_of(parameter: Any) -> str:
    """Returns the heading above a Typer parameter in the help."""
    is_argument = parameter.param_type_name == "argument"
    return "Arguments" if is_argument else parameter.rich_help_panel or PLAIN_GROUP


def variables_of(parameter: Any) -> tuple[str, ...]:
    """Returns the environment variables of a Typer parameter; the first one is documented."""
    names = parameter.envvar
    return (names,) if isinstance(names, str) else tuple(names or ())


def given_variable(parameter: Any) -> str:
    """Returns the variable of a parameter that is set, or else the documented one."""
    names = variables_of(parameter)
    return next((name for name in names if os.environ.get(name)), names[0])


def heading(text: str) -> str:
    """Returns a heading of the help, bold on a terminal."""
    return typer.style(text, bold=True) if supports_styles(sys.stdout) else text


def build_command(name: str, function: Function, examples: Sequence[str]) -> Command:
    """Returns the Typer command that calls `function` with its settings."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = {"help_option_names": ["--help"], "max_content_width": 100}
    app.command(name, cls=Command, context_settings=settings)(_expanded(function))
    command = get_command(app)
    assert isinstance(command, Command)
    command.name, command.examples = name, tuple(examples)
    fields = dict(_fields(function))
    for parameter in command.params:
        _adapt(parameter, fields.get(parameter.name or ""))
    return command


def _adapt(parameter: Any, field: Field | None) -> None:
    """Lets the variable of a switch have more words, and that of a list its own separator."""
    if getattr(parameter, "is_flag", False):
        parameter.type = copy(parameter.type)
        parameter.type.convert = _reader(switch)
    elif field is not None and field.option.split is not None:
        parameter.type.split_envvar_value = field.option.split


def _expanded(function: Function) -> Function:
    """Returns a function with a parameter for each setting, which calls `function`."""
    parameters = [_parameter(name, field) for name, field in _fields(function)]
    parameters.sort(key=_rank)
    names = [n for n, p in _own(function).items() if p.annotation is typer.Context]

    def call(**values: Any) -> None:
        values.pop("short_help", None)
        function(**arguments_of(function, values))

    short = typer.Option(
        "-h", callback=_print_short_help, is_eager=True, help="Show the everyday options and exit."
    )
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *(_keyword(name, typer.Context) for name in names),
            *parameters,
            _keyword("short_help", Annotated[bool, short], False),
        ]
    )
    call.__annotations__ = {}  # Typer would take them for those of parameters of these names
    call.__doc__ = function.__doc__
    return call


def arguments_of(function: Function, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `function`, with its structs built from the values in them."""
    for name, setting in settings_of(function):
        if not isinstance(setting, Field):
            values[name] = _built(setting, _chosen(function, name), values)
    own = _own(function)
    return {name: value for name, value in values.items() if name in own}


def _built(kind: Any, chosen: Only, values: dict[str, Any]) -> Any:
    given: dict[str, Any] = {}
    for name, setting in settings_of(kind):
        if not isinstance(setting, Field):
            given[name] = _built(setting, chosen, values)
        elif chosen.has(setting):
            value = values.get(setting.option.parameter)
            if isinstance(value, dict):
                given |= value
            elif value is not None:
                given[name] = tuple(_flat(value)) if setting.is_list else value
    return kind(**given)


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    """Yields the values of a repeated option, each of which may hold several."""
    for value in values:
        yield from value if isinstance(value, tuple) else [value] if value else []


def _own(function: Function) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def _chosen(function: Function, name: str) -> Only:
    """Returns which settings of a struct the command has."""
    annotated = get_args(_own(function)[name].annotation)
    return next((each for each in annotated if isinstance(each, Only)), Without(()))


def _fields(function: Function) -> Iterator[tuple[str, Field]]:
    """Yields the Typer parameter's name and the setting of each option of a command."""
    for name, setting in settings_of(function):
        if isinstance(setting, Field):
            yield name, setting
        else:
            fields = filter(_chosen(function, name).has, all_fields(setting))
            yield from ((field.option.parameter, field) for field in fields)


def _parameter(name: str, field: Field) -> inspect.Parameter:
    """Returns the parameter from which Typer makes an option or argument."""
    option, kind, default = field.option, field.kind, _default(field)
    settings: dict[str, Any] = {
        "help": option.help,
        "metavar": option.metavar,
        "show_envvar": False,
        "show_default": option.default or default not in (None, False, ...),
    }
    if option.parse or (kind is not bool and get_origin(kind) is not Literal):
        settings["parser"] = _reader(lambda text: option.read(text, field.kind), field.default)
        kind, settings["metavar"] = str, option.metavar or "TEXT"
    elif len(choices := ", ".join(get_args(kind))) > _WIDEST_CHOICES:
        settings |= {"metavar": "NAME", "help": f"{option.help} One of {choices}."}
    if name in ("model", "model_file"):
        settings["autocompletion"] = _models
    kind = list[kind] if field.is_list else kind  # type: ignore[valid-type]
    if not option.flags:
        return _keyword(name, kind, typer.Argument(default, **settings))
    settings |= {"envvar": option.variables or None, "rich_help_panel": field.group}
    return _keyword(name, kind, typer.Option(default, *option.flags, **settings))


def _models(incomplete: str) -> list[str]:
    from sharpi.cli.model_path import models_beginning

    return models_beginning(incomplete)


def _default(field: Field) -> Any:
    """Returns the default that Typer shows; without one, the struct or function has its own."""
    if field.default is inspect.Parameter.empty:
        return ...
    if isinstance(field.default, tuple):
        return ",".join(map(str, field.default)) or None
    return field.default


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _reader(read: Callable[[str], Any], default: Any = None) -> Callable[..., Any]:
    """Returns a function that reads a text as Typer wants it, and leaves defaults as they are."""

    def convert(value: Any, parameter: Any = None, context: Any = None) -> Any:
        if not isinstance(value, str) or value == default:
            return value
        try:
            return read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), context, parameter) from None

    return convert


def _rank(parameter: inspect.Parameter) -> int:
    """Returns the sort key of a parameter; those of one group keep their order."""
    info = parameter.default
    is_option = bool(getattr(info, "param_decls", None))
    return _GROUPS.index(info.rich_help_panel or PLAIN_GROUP) if is_option else 0


def _print_short_help(context: typer.Context, wanted: bool) -> None:
    """Prints the help with the everyday options alone."""
    if wanted and not context.resilient_parsing:
        context.meta[_IS_SHORT] = True
        print(context.get_help())
        print(f"\n`{context.command_path} --help` explains everything.")
        raise typer.Exit
