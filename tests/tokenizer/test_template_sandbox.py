"""Templates render as plain jinja2 renders them; hostile ones reach nothing and are stopped."""

import json
import time

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from sharpi.errors import TemplateError
from sharpi.tokenizer import template_sandbox
from sharpi.tokenizer.chat_template import ChatFormat

MESSAGES = [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "caf\u00e9"}]
CONSTRUCTS = {
    "a namespace set in a loop": "{% for m in messages %}{% set n = namespace(a=1, b=[]) %}"
    "{% set n.a = n.a + loop.index %}{{ m.get('content') }}{{ n.a }}{% endfor %}",
    "a namespace as an argument, in a list and in a namespace": "{% set n = namespace(a=1) %}"
    "{% macro f(x, y) %}{% set x.a = 7 %}{{ y[0].a }}{% endmacro %}{{ f(n, [n]) }}"
    "{% set o = namespace(n=n) %}{{ o.n.a }}{{ {'k': n}.k.a }}",
    "macros, call blocks and callers": "{% macro f(x, y='d') %}[{{ x }}{{ y }}{{ caller() }}]"
    "{% endmacro %}{% call f(1) %}a{{ messages | length }}{% endcall %}"
    "{% macro g(n) %}{{ n }}{% if n %}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(3) }}",
    "filter and set blocks": "{% filter upper | trim %} a{{ messages[0].role }} {% endfilter %}"
    "{% set x %}b{{ 1 }}{% endset %}{{ x | length }}{% set y | upper %}c{% endset %}{{ y }}",
    "loops": "{% for a, b in messages[0] | dictsort %}{{ loop.index }}{{ loop.last }}{{ a }}"
    "{{ loop.length }}{{ loop.nextitem }}{{ loop.changed(b) }}{{ loop.cycle('x', 'y') }}"
    "{% else %}e{% endfor %}{% for x in none or [] %}{% else %}none{% endfor %}"
    "{% for x in nothing %}{% endfor %}{% for x in range(9) if x % 2 recursive %}{{ x }}"
    "{% if x == 3 %}{{ loop([1, 4, 5]) }}{% endif %}{% if x == 7 %}{% break %}{% endif %}"
    "{% continue %}{% endfor %}",
    "joined and computed": "{{ 'a' ~ 1 ~ none ~ [messages[0].role] }}{{ 2 ** 10 }}{{ '%s' % 3 }}"
    "{{ (1, 'a') }}{{ {'a': [1]} }}{{ 'x' * 3 }}{{ messages[-1:] | map(attribute='role') | list }}"
    "{{ messages | selectattr('role', '==', 'user') | list | tojson(indent=2) }}"
    "{{ '{:>4}|{}'.format('ab', 1) }}{{ 'a-b'.split('-') | join('+') }}",
    "blanks": "  {% if true %}\n x\n  {%- endif %}\n\n  {# note #}\ny {{- 'z' }}\n",
}
ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['__builtins__'] }}",
    "{{ (messages | map('attr', '__class__') | list)[0].mro() }}",
    "{{ '' | attr('__class__') }}",
    "{{ '{0.__class__}'.format('') | length / 0 }}",
    "{{ ('{0.__class__.__mro__}' | attr('format'))('').upper() / 0 }}",
    "{{ self.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ joiner.__init__.__globals__.os.popen('id').read() }}",
    "{% set x = namespace() %}{% set x.__class__ = 1 %}{{ x.y.z }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].clear() }}",
    "{% import 'os' as os %}",
    "{% include '/etc/passwd' %}",
    "{% for f in ().__class__.__base__.__subclasses__() %}{{ f() }}{% endfor %}{{ x.y }}",
]
LOOPS = "{% for a in range(99999) %}" * 4 + "x" + "{% endfor %}" * 4
BOMBS = {
    "range": "{{ range(10 ** 9) | list }}",
    "loops": LOOPS,
    "empty loops": LOOPS.replace("x", ""),
    "loops of a macro": "{% macro f() %}" + LOOPS.replace("x", "") + "{% endmacro %}{{ f() }}",
    "output": "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "tree recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(99) }}",
    "recursive loop": "{% for x in range(999) recursive %}{{ loop(range(999)) }}{% endfor %}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "blocks": "{% if true %}" * 300 + "{{ 1 / 0 }}" + "{% endif %}" * 300,
    "long source": "x" * (2 << 20),
}


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_output_is_that_of_plain_jinja2(name: str) -> None:
    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    plain.filters["tojson"] = lambda value, indent=None: json.dumps(
        value, indent=indent, ensure_ascii=False
    )
    expected = plain.from_string(CONSTRUCTS[name]).render(messages=MESSAGES)
    assert expected
    assert ChatFormat("template", CONSTRUCTS[name]).render(MESSAGES) == expected


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_to_python(source: str) -> None:
    """Withheld attributes raise an error, or are undefined and render as nothing."""
    try:
        text = ChatFormat("template", source).render([{"role": "user", "content": "Hi"}])
    except TemplateError:
        return
    assert text == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_no_endless_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its limits the template would practically never end."""
    monkeypatch.setattr(template_sandbox, "MAX_SECONDS", 0.1)
    with pytest.raises(TemplateError) as caught:
        ChatFormat("template", BOMBS[name]).render([{"role": "user", "content": "Hi"}])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_failure_leaves_the_format_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = ChatFormat("template", "{% if messages %}ok{% else %}" + LOOPS + "{% endif %}")
    with monkeypatch.context() as patch:
        patch.setattr(template_sandbox, "MAX_SECONDS", 0.1)
        with pytest.raises(TemplateError):
            chat.render([])
    assert chat.render([{"role": "user", "content": ""}]) == "ok"


@pytest.mark.speed
def test_time_is_proportional_to_the_conversation() -> None:
    """The template looks at all messages for each of them, as Qwen3's does."""
    source = (
        "{% for m in messages %}{% set later = messages[::-1] %}{% if messages | length %}"
        "{{ later[0].role + m.content.split('</think>') | last }}{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "x" * 1600}] * 301
    start = time.thread_time()
    assert len(ChatFormat("template", source).render(messages)) == 301 * 1604
    assert time.thread_time() - start < 0.2
