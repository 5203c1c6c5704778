"""FormatBody: the type of `response_format` and similar members, for the form of an answer."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sharpi.serve.chat.chat_call import AnswerShape
from sharpi.serve.http.body import Body, Ignored
from sharpi.serve.http.body_faults import raise_invalid

# A JSON schema, which may be true or false.
Schema = Annotated[dict[str, Any] | bool, Meta(extra={"must": "must be an object"})]


class NamedSchema(Body):
    """The schema of chat completions, with its name."""

    schema: Schema | None = None
    name: Ignored = None
    strict: Ignored = None
    description: Ignored = None


class FormatBody(Body):
    """Text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"] | None = None
    json_schema: NamedSchema | None = None
    schema: Schema | None = None
    name: Ignored = None
    strict: Ignored = None
    description: Ignored = None


def shape_of(form: FormatBody, path: str, *, nested: bool) -> AnswerShape:
    """Converts the format; with `nested`, the schema is in `json_schema.schema`.

    Otherwise it is in `schema`. Raises ApiError if it is missing.
    """
    if form.type in (None, "text"):
        return AnswerShape()
    schema = form.schema
    if form.type == "json_schema" and nested:
        if form.json_schema is None:
            raise_invalid(f"{path}.json_schema", "is required")
        schema = form.json_schema.schema
        if schema is None:
            raise_invalid(f"{path}.json_schema.schema", "is required")
    if form.type == "json_schema" and schema is None:
        raise_invalid(f"{path}.schema", "is required")
    if schema is not None:  # llama.cpp's server accepts a schema with json_object, too
        return AnswerShape("json_schema", schema, path)
    return AnswerShape("json_object", None, path)
