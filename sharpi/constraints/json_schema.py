"""JSON schemas for llguidance: options, keywords that it lacks, and what stays unenforced.

llguidance ignores keywords that it does not implement, and names them (`lenient`). `oneOf` whose
branches overlap means `anyOf`. Formats that it does not know are annotations, as in the standard.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from llguidance import LLMatcher, LLParserLimits

from sharpi.errors import GrammarError

Schema: TypeAlias = dict[str, Any] | bool

# A space, or one or two line ends and an indent: bounded, so that no answer is only white space.
WHITESPACE = r" |\n{1,2}[ \t]{0,20}"
# These options override those in the schema itself ("x-guidance").
OPTIONS: Any = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    "whitespace_pattern": WHITESPACE,
    "coerce_one_of": True,
    "lenient": True,
}
# Keywords with a schema, a list of schemas, or schemas by name, for other values or for the same.
_SCHEMAS = ("additionalProperties", "items", "additionalItems", "contains")
_LISTS = ("prefixItems", "items")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_CONDITIONAL = ("if", "then", "else")
_COMBINED = ("allOf", "anyOf", "oneOf")
_DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")
_NOTES = frozenset(["title", "description", "$comment", "type", "properties", "required"])
_LISTING = frozenset(["title", "description", "$comment", "type", "const", "enum"])
_NO_OBJECT: Schema = {"type": ["null", "boolean", "array", "number", "string"]}
_MAX_DEPTH = 100
_MAX_SCHEMAS = 10_000  # a fifth of a second
_MAX_PATTERNS = 1000  # a tenth of a second
_MAX_NAME = 80
# llguidance warns of formats that it does not know, in any schema: so it passes names on.
_UNKNOWN_FORMAT = "Unknown format: "
_UNENFORCED = "not enforced: "
_WARNED = {
    "oneOf not fully supported": "oneOf (several branches may fit)",
    "min/maxProperties only": "minProperties or maxProperties",
}
_TIMES = re.compile(r" \(\d+ times\)$")
_WARNED_KEYS = re.compile(r"Unimplemented keys: \[(.*)\]")


def grammar_of_schema(schema: Mapping[str, Any] | bool, *, has_conditions: bool = True) -> str:
    """Returns llguidance's grammar of a JSON schema, as text that is not compiled yet.

    `has_conditions`: dependencies and `if` are rewritten. Raises GrammarError if `schema` is
    malformed.
    """
    if schema is False:
        raise GrammarError("the JSON schema is false, which no answer satisfies")
    if schema is not True and not isinstance(schema, Mapping):
        raise GrammarError(f"a JSON schema is an object, not {json.dumps(schema)[:40]}")
    known = {} if schema is True else schema
    text = _as_json(rewritten_schema(known, has_conditions=has_conditions))
    try:
        return str(LLMatcher.grammar_from_json_schema(text, overrides=OPTIONS))
    except ValueError as error:
        raise GrammarError(f"the JSON schema cannot be used: {error}") from error


def rewritten_schema(schema: Mapping[str, Any], *, has_conditions: bool = True) -> dict[str, Any]:
    """Returns a schema that llguidance can use; raises GrammarError for a malformed one."""
    try:
        return _Rewriting(has_conditions).document(dict(schema))
    except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is malformed: {str(error)[:100]}") from error


def unenforced(warnings: Iterable[str]) -> tuple[str, ...]:
    """Returns the keywords that a grammar does not enforce, from llguidance's warnings."""
    names: list[str] = []
    for warning in (_TIMES.sub("", warning) for warning in warnings):
        if keys := _WARNED_KEYS.search(warning):
            names += json.loads(f"[{keys[1]}]")
        elif warning.startswith(_UNKNOWN_FORMAT):
            _, is_ours, name = warning.partition(_UNENFORCED)
            names += [name[:_MAX_NAME]] if is_ours else []
        else:
            known = (name for start, name in _WARNED.items() if warning.startswith(start))
            names.append(next(known, " ".join(warning.split())[:_MAX_NAME]))
    return tuple(sorted(set(names)))


class _Rewriting:
    """Rewrites one document; the result's size is a small multiple of the document's."""

    def __init__(self, has_conditions: bool) -> None:
        self._has_conditions = has_conditions
        self._num_schemas = 0
        self._patterns: dict[str, bool] = {}  # whether llguidance can use them

    def document(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Returns the rewritten document."""
        return self._object(schema, {}, 0)

    def _schema(self, schema: Any, known: Mapping[str, Any], depth: int) -> Any:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return schema
        return self._object(schema, known, depth)

    def _object(
        self, schema: dict[str, Any], known: Mapping[str, Any], depth: int
    ) -> dict[str, Any]:
        """Rewrites a schema; `known`: the properties that schemas of the same value list."""
        self._num_schemas += 1
        if self._num_schemas > _MAX_SCHEMAS:
            raise GrammarError(f"the JSON schema consists of more than {_MAX_SCHEMAS} schemas")
        properties = schema.get("properties", {})
        known = {**known, **properties} if isinstance(properties, dict) else known
        result = {key: self._part(key, value, known, depth + 1) for key, value in schema.items()}
        if result.get("uniqueItems") is False:
            del result["uniqueItems"]
        removed = [*self._odd_pattern(result), *_uncountable(result)]
        more: list[Schema] = [{"format": _UNENFORCED + name} for name in removed]
        if self._has_conditions:
            more += [*_dependent(result), *_conditional(result, known)]
        if more:
            result["allOf"] = [*result.get("allOf", ()), *more]
        return result

    def _part(self, key: str, value: Any, known: Mapping[str, Any], depth: int) -> Any:
        if key in (*_SCHEMAS, *_CONDITIONAL) and isinstance(value, dict):
            return self._schema(value, known if key in _CONDITIONAL else {}, depth)
        if key in (*_LISTS, *_COMBINED) and isinstance(value, list):
            same = known if key in _COMBINED else {}
            return [self._schema(each, same, depth) for each in value]
        if key in (*_MAPS, *_DEPENDENT) and isinstance(value, dict):
            same = known if key in _DEPENDENT else {}
            return {name: self._schema(each, same, depth) for name, each in value.items()}
        return value

    def _odd_pattern(self, schema: dict[str, Any]) -> Iterator[str]:
        """Removes and names a pattern that llguidance cannot use, such as one with look-around."""
        pattern = schema.get("pattern")
        if isinstance(pattern, str) and not self._is_usable(pattern):
            yield f"pattern {schema.pop('pattern')}"

    def _is_usable(self, pattern: str) -> bool:
        if pattern not in self._patterns:
            is_checked = len(self._patterns) < _MAX_PATTERNS
            self._patterns[pattern] = not is_checked or _compiles(pattern)
        return self._patterns[pattern]


def _uncountable(schema: dict[str, Any]) -> Iterator[str]:
    """Removes and names numbers of properties that llguidance would count only in part."""
    listed, required = set(schema.get("properties", ())), set(schema.get("required", ()))
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if not listed - required:
        return
    for keyword, has_effect in (
        ("minProperties", schema.get("minProperties", 0) > len(required)),
        ("maxProperties", not is_closed or schema.get("maxProperties", 0) < len(listed)),
    ):
        if keyword in schema:
            del schema[keyword]
            if has_effect:
                yield keyword


def _dependent(schema: dict[str, Any]) -> Iterator[Schema]:
    """Removes keywords of dependencies; yields an `anyOf` in place of each dependency."""
    others = [] if schema.get("type") == "object" else [_NO_OBJECT]
    for keyword in _DEPENDENT:
        for name, needed in schema.pop(keyword, {}).items():
            names = [needed] if isinstance(needed, str) else needed
            if isinstance(names, list):
                present: Schema = {"type": "object", "required": [name, *names]}
            else:
                present = {"allOf": [{"type": "object", "required": [name]}, needed]}
            yield {"anyOf": [_without(name), present, *others]}


def _conditional(schema: dict[str, Any], known: Mapping[str, Any]) -> Iterator[Schema]:
    """Removes `if`, `then` and `else`, unless their negation is unknown, and yields an `anyOf`."""
    condition, then, otherwise = (schema.get(key, True) for key in _CONDITIONAL)
    has_effect = "if" in schema and (then, otherwise) != (True, True)
    failing = _negated(condition, known) if has_effect else []
    if failing is None:
        return
    for key in _CONDITIONAL:
        schema.pop(key, None)
    if has_effect:
        fails = [{"allOf": [{"anyOf": failing}, otherwise]}] if failing else []
        yield {"anyOf": [{"allOf": [condition, then]}, *fails]}


def _negated(condition: Any, known: Mapping[str, Any]) -> list[Schema] | None:
    """Returns schemas of which values that fail a condition match one; None if that is unknown."""
    if isinstance(condition, bool):
        return [] if condition else [True]
    if set(condition) - _NOTES or condition.get("type", "object") != "object":
        return None
    failing: list[Schema] = [_NO_OBJECT] if "type" in condition else []
    failing += map(_without, condition.get("required", ()))
    for name, wanted in condition.get("properties", {}).items():
        every, excluded = _values(known.get(name)), _values(wanted)
        if every is None or excluded is None or set(wanted) - _LISTING:
            return None
        texts = [json.dumps(value) for value in excluded]
        rest = [value for value in every if json.dumps(value) not in texts]
        if rest:
            properties = {name: {"enum": rest}}
            failing.append({"type": "object", "required": [name], "properties": properties})
    return failing


def _values(schema: Any) -> list[Any] | None:
    """Returns the values that a schema lists; None if it lists none."""
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "boolean" and "const" not in schema:
        return [False, True]
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _without(name: str) -> Schema:
    return {"type": "object", "properties": {name: False}}


def _compiles(pattern: str) -> bool:
    grammar = LLMatcher.grammar_from_json_schema({"type": "string", "pattern": pattern})
    return not LLMatcher.validate_grammar(grammar, limits=LLParserLimits(verbose_errors=False))


def _as_json(schema: Mapping[str, Any]) -> str:
    """Returns a schema as JSON text; raises GrammarError for NaN, infinities and deep nesting."""
    try:
        return json.dumps(schema, allow_nan=False)
    except RecursionError as error:
        raise GrammarError("the JSON schema is nested too deeply") from error
    except ValueError as error:
        raise GrammarError(
            f"the JSON schema has a number that JSON does not allow: {error}"
        ) from error
