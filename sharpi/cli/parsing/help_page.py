"""Writes the help of a command: all options under headings, or the everyday options only.

Rich is not used, because importing it would take half of the time allowed for `--help`.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import click

PLAIN_HEADING = "Prompt and output"
_FIRST = ("Arguments", PLAIN_HEADING)
# Headings that come last: options with good defaults, or that few users set.
_LAST = ("Machine", "Experts", "Experts not on the GPU", "Finding a fault")
_WIDEST_NAMES = 76  # characters of a line, less the indent
_CLAUSE = re.compile(r"[.;]\s|\s\(|,\s(?:without|as in|if)\s|[.;]$")


def write_options(
    parameters: Iterable[click.Parameter], context: click.Context, formatter: click.HelpFormatter
) -> None:
    """Writes a section for each heading: arguments first, options for advanced users last."""
    sections: dict[str, list[Any]] = {}
    for each in parameters:
        sections.setdefault(heading_of(each), []).append(each)
    for heading in sorted(sections, key=rank):
        with formatter.section(heading):
            formatter.write_dl([_record(each, context) for each in sections[heading]])
    if rule := variables_rule(list(parameters)):
        formatter.write_paragraph()
        formatter.write_text(rule)


def write_examples(examples: Sequence[str], formatter: click.HelpFormatter) -> None:
    """Writes the examples, a line each."""
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def short_help(context: click.Context, examples: Sequence[str]) -> str:
    """Returns help that fits on one screen: the summary, the everyday options and the examples."""
    command, formatter = context.command, context.make_formatter()
    command.format_usage(context, formatter)
    formatter.write_paragraph()
    formatter.write_text((command.help or "").partition("\n\n")[0])
    if chosen := [each for each in command.params if _is_chosen(each)]:
        with formatter.section("Arguments"):
            formatter.write_dl([_short_argument(each) for each in chosen])
    options = [each for each in command.params if each.param_type_name == "option"]
    shown = [each for each in options if _is_everyday(each)] or options
    with formatter.section("Everyday options" if len(shown) < len(options) else "Options"):
        formatter.write_dl([_short_record(each) for each in shown])
    write_examples(examples[:3], formatter)
    formatter.write_paragraph()
    formatter.write_text(f"`{context.command_path} --help` explains everything.")
    return formatter.getvalue().rstrip()


def heading_of(parameter: Any) -> str:
    """Returns the heading under which the help lists a parameter."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    field = getattr(parameter, "field", None)
    return (field and field.heading) or PLAIN_HEADING


def variables_rule(parameters: Sequence[Any]) -> str:
    """Returns two sentences on the environment variables of the options; empty without any."""
    options = [each for each in parameters if hasattr(each, "field") and each.opts[0][:1] == "-"]
    without = [each.opts[-1] for each in options if not each.envvar]
    first = next((each for each in options if each.envvar), None)
    if first is None:
        return ""
    name = next(name for name in first.opts if name.startswith("--"))
    but = f" but {', '.join(without)}" if without else ""
    variable = first.field.declared.variables[0]
    return f"Each option{but} has a variable: {variable} is {name}. A flag overrides its variable."


def rank(heading: str) -> int:
    """Returns the sort key of a heading; headings with equal keys keep their order."""
    if heading in _FIRST:
        return _FIRST.index(heading) - len(_FIRST)
    return 1 + _LAST.index(heading) if heading in _LAST else 0


def _is_chosen(parameter: Any) -> bool:
    """Returns whether a parameter is an argument with a fixed list of allowed words."""
    return parameter.param_type_name == "argument" and bool(choices_of(parameter))


def _is_everyday(parameter: Any) -> bool:
    field = getattr(parameter, "field", None)
    return field is not None and field.declared.is_everyday


def _record(parameter: Any, context: click.Context) -> tuple[str, str]:
    field = getattr(parameter, "field", None)
    if field is None:  # options such as --help
        return ", ".join(parameter.opts), parameter.help or ""
    extra = _extra(field, parameter)
    names, text = names_of(parameter, context), field.declared.help
    if len(names) > _WIDEST_NAMES and (choices := choices_of(parameter)):
        names = names.replace(_bracketed(choices), parameter.metavar or "NAME")
        text = f"{text.rstrip('.')}. One of {', '.join(choices)}."
    return names, text + (f"  [{extra}]" if extra else "")


def _short_record(parameter: Any) -> tuple[str, str]:
    """Returns one short and one long name of an option, and the first clause of its help."""
    short = [name for name in parameter.opts if not name.startswith("--")][:1]
    long = [name for name in parameter.opts if name.startswith("--")][:1]
    off = parameter.secondary_opts[:1]
    value = "" if parameter.is_flag or not parameter.metavar else f" {parameter.metavar}"
    names = ", ".join(short + long) + "".join(f" / {name}" for name in off)
    field = getattr(parameter, "field", None)
    text = field.declared.help if field is not None else parameter.help
    return names + value, _CLAUSE.split(text, maxsplit=1)[0]


def _short_argument(parameter: Any) -> tuple[str, str]:
    return parameter.metavar, parameter.field.declared.help.rstrip(".")


def names_of(parameter: Any, context: click.Context) -> str:
    """Returns the names of an option and its value, such as `-n, --predict N`.

    For an argument, returns its name as in the usage line.
    """
    if parameter.param_type_name == "argument":
        return str(parameter.make_metavar(context))
    both = [", ".join(each) for each in (parameter.opts, parameter.secondary_opts) if each]
    value = _value(parameter)
    return " / ".join(both) + (f" {value}" if value else "")


def _value(parameter: Any) -> str:
    if parameter.is_flag:
        return ""
    choices = choices_of(parameter)
    return _bracketed(choices) if choices else parameter.metavar or "TEXT"


def choices_of(parameter: Any) -> Sequence[str]:
    """Returns the allowed values of an option; empty if they are not a fixed list."""
    return tuple(getattr(parameter.type, "choices", ()))


def _bracketed(choices: Sequence[str]) -> str:
    return f"[{'|'.join(choices)}]"


def _extra(field: Any, parameter: Any) -> str:
    return "; ".join(filter(None, (_default(field, parameter), _range(field.declared))))


def _default(field: Any, parameter: Any) -> str | None:
    if parameter.required:
        return "required"
    if field.declared.show_default:
        return f"default: {field.declared.show_default}"
    default = field.default
    if default is None or default is False or default in ("", [], ()):
        return None
    if default is True:
        return f"default: {parameter.opts[0].removeprefix('--')}"
    return f"default: {default}"


def _range(declared: Any) -> str | None:
    low, high = declared.min, declared.max
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"at least {low}"
    return None if high is None else f"at most {high}"
