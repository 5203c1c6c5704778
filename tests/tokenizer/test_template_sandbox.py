"""Hostile templates: none reaches Python, and all are stopped early."""

import time
import tracemalloc

import pytest

from sharpi.errors import TemplateError
from sharpi.tokenizer.chat_template import ChatFormat

ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['__builtins__'] }}",
    "{{ range.__self__ }}",
    "{{ (messages | map('attr', '__class__') | list)[0].mro() }}",
    "{{ '' | attr('__class__') }}",
    "{{ '{0.__class__}'.format('') | length / 0 }}",
    "{{ ('{0.__class__.__mro__}' | attr('format'))('').upper() / 0 }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ joiner.__init__.__globals__.os.popen('id').read() }}",
    "{% set x = namespace() %}{% set x.__class__ = 1 %}{{ x.y.z }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].clear() }}",
    "{{ messages.__setitem__(0, 1) }}",
    "{{ environment.filters }}{{ environment.x.y }}",
    "{% import 'os' as os %}",
    "{% extends '/etc/passwd' %}",
    "{% include '/etc/passwd' %}",
    "{% for f in ().__class__.__base__.__subclasses__() %}{{ f() }}{% endfor %}{{ x.y }}",
    "{{ lipsum.__globals__ }}",
    "{{ dict.__base__.__subclasses__() }}",
    "{{ (1).__class__.__bases__ }}",
    "{{ messages[0].get.__self__.__class__.x }}",
]
NESTED = "{% for a in range(99999) %}" * 4 + "x" + "{% endfor %}" * 4
DOUBLING = "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(99) %}"
BOMBS = {
    "range": "{{ range(10 ** 9) | list }}",
    "loops": NESTED,
    "empty loops": NESTED.replace("x", ""),
    "output": "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "string": "{{ 'a' * 10 ** 9 }}",
    "string reversed": "{{ 10 ** 9 * 'a' }}",
    "list": "{{ ([0] * 10 ** 9) | length }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "power of powers": "{{ 9 ** 999 ** 9 }}",
    "squares": "{% set n = namespace(x=9) %}{% for i in range(99) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}",
    "sum of strings": DOUBLING + "{% set n.x = n.x + n.x %}{% endfor %}",
    "concatenation": DOUBLING + "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "block": DOUBLING + "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "join": DOUBLING + "{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "join method": DOUBLING + "{% set n.x = ''.join([n.x, n.x]) %}{% endfor %}",
    "replace": DOUBLING + "{% set n.x = n.x | replace('a', 'aa') %}{% endfor %}",
    "replace method": DOUBLING + "{% set n.x = n.x.replace('a', n.x) %}{% endfor %}",
    "nested lists": DOUBLING + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "nested tuples": DOUBLING + "{% set n.x = (n.x, n.x) %}{% endfor %}{{ n.x | string }}",
    "nested objects": DOUBLING
    + "{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ n.x | tojson }}",
    "nested dict calls": DOUBLING + "{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
    "nested namespaces": DOUBLING + "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
    "many references": "{% set s = 'a' * 1000000 %}{{ ([s] * 1000000) | join }}",
    "generator": "{% set s = 'a' * 1000000 %}{{ range(99999) | map('replace', 1, s) | join(s) }}",
    "center": "{{ 'a' | center(10 ** 9) }}",
    "ljust": "{{ 'a'.ljust(10 ** 9) }}",
    "zfill": "{{ 'a'.zfill(10 ** 9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10 ** 9) }}",
    "indent": "{{ 'a\nb' | indent(10 ** 9) }}",
    "json indent": "{{ [[1]] | tojson(indent=10 ** 9) }}",
    "batch": "{{ [1] | batch(10 ** 9, 'x') | list }}",
    "slice": "{{ [1] | slice(10 ** 9) | list }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "computed format": "{{ '{:{w}}'.format(1, w=10 ** 9) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (10 ** 9, 1) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "date": "{{ strftime_now('%999999999d') }}",
    "sum of lists": "{% set l = [[0] * 1000] * 1000 %}{{ (l | sum(start=[])) | length }}",
    "lipsum": "{{ lipsum(n=10 ** 6) }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "tree recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(99) }}",
    "recursive loop": "{% for x in range(999) recursive %}{{ loop(range(999)) }}{% endfor %}",
    "translate": "{{ 'aaaa'.translate({97: 'a' * 1000000}) }}",
    "constant": "{{ 'a' | center(100000000) }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "blocks": "{% if true %}" * 300 + "{{ 1 / 0 }}" + "{% endif %}" * 300,
    "long source": "x" * (2 << 20),
}
LONG = {"tree recursion"}  # two seconds until the limit is reached
MAX_SECONDS = 8
MAX_BYTES = 400 << 20


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_to_python(source: str) -> None:
    """Withheld attributes raise an error, or are undefined and render as nothing."""
    try:
        text = ChatFormat("template", source).render([{"role": "user", "content": "Hi"}])
    except TemplateError:
        return
    assert text == ""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in BOMBS]
)
def test_no_endless_work(name: str) -> None:
    """Without its limits the template would practically never end."""
    with pytest.raises(TemplateError) as caught:
        ChatFormat("template", BOMBS[name]).render([{"role": "user", "content": "Hi"}])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.speed
@pytest.mark.parametrize("name", BOMBS)
def test_the_limits_are_reached_soon(name: str) -> None:
    start = time.monotonic()
    with pytest.raises(TemplateError):
        ChatFormat("template", BOMBS[name]).render([{"role": "user", "content": "Hi"}])
    assert time.monotonic() - start < MAX_SECONDS


@pytest.mark.parametrize("name", ["concatenation", "many references", "generator"])
def test_no_endless_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            ChatFormat("template", BOMBS[name]).render([])
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


def test_a_long_conversation_is_no_bomb() -> None:
    source = (
        "{% for m in messages %}{% set c = m.content | trim %}{% if '</think>' in c %}"
        "{% set c = c.split('</think>') | last %}{% endif %}"
        "{{ '<|' + m.role + '|>' + c.replace('a', 'a') + '\n' }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "a word " * 200}] * 2000
    assert len(ChatFormat("template", source).render(messages)) > 2_800_000


def test_a_failure_leaves_the_format_usable() -> None:
    chat = ChatFormat("template", "{% if messages %}ok{% else %}{{ range(10 ** 9) }}{% endif %}")
    with pytest.raises(TemplateError):
        chat.render([])
    assert chat.render([{"role": "user", "content": ""}]) == "ok"
