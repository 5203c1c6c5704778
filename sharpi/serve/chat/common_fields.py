"""Reads the fields that all APIs share: the model, and the form of the answer."""

from sharpi.serve.chat.chat_call import AnswerShape
from sharpi.serve.host.model_host import ModelHost
from sharpi.serve.http.request_fields import RequestFields


def read_model(fields: RequestFields, host: ModelHost) -> None:
    """Refuses the name of another model; without a name the loaded one is used."""
    name = fields.text("model")
    if name is not None:
        host.require_model(name)


def shape_of(form: RequestFields, *, nested: bool) -> AnswerShape:
    """Reads a response format by its type.

    `nested`: the schema is inside an object with its name.
    """
    kind = form.choice("type", ("text", "json_object", "json_schema"))
    path, source = form.path, form
    if kind == "json_schema" and nested:
        source = form.fields("json_schema") or form.fail("json_schema", "is required")
    source.ignore("name", "strict", "description")
    schema = source.mapping("schema")
    source.close()
    form.close()
    if kind == "json_schema":
        if schema is None:
            source.fail("schema", "is required")
        return AnswerShape("json_schema", schema, path)
    if kind == "json_object":
        return _json_object(schema, path)
    return AnswerShape()


def _json_object(schema: object, path: str) -> AnswerShape:
    """Returns the shape of `json_object`; llama.cpp's server accepts a schema here, too."""
    if schema is not None:
        return AnswerShape("json_schema", schema, path)
    return AnswerShape("json_object", None, path)
