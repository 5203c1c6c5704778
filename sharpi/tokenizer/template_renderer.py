"""TemplateRenderer: renders a chat template with its variables; error messages have one line."""

from collections.abc import Mapping
from typing import Any

import jinja2

from sharpi.errors import TemplateError
from sharpi.gguf.file_error import printable
from sharpi.tokenizer.template_budget import TemplateBudget
from sharpi.tokenizer.template_sandbox import TemplateSandbox

_MAX_SOURCE = 1 << 20


class TemplateRenderer:
    """Renders chat templates in a TemplateSandbox, and caches compiled templates."""

    def __init__(self) -> None:
        self._sandbox = TemplateSandbox()
        self._compiled: dict[str, jinja2.Template] = {}

    def render(self, source: str, values: Mapping[str, Any]) -> str:
        """Returns the output of a template; raises TemplateError for any failure."""
        try:
            self._sandbox.budget = TemplateBudget()
            return self._sandbox.concat(self._template(source).generate(values))
        except TemplateError as error:
            raise TemplateError(_one_line(str(error))) from None
        except RecursionError:
            raise TemplateError("the chat template recurses without end") from None
        except Exception as error:
            line = (
                f" in line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            )
            text = f"the chat template fails{line}: {_one_line(str(error))}; --raw skips it"
            raise TemplateError(text) from None

    def _template(self, source: str) -> jinja2.Template:
        if source not in self._compiled:
            if len(source) > _MAX_SOURCE:
                raise TemplateError("the chat template is longer than a megabyte")
            self._compiled[source] = self._sandbox.from_string(source)
        return self._compiled[source]


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()))
