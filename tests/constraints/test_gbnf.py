"""GBNF: the meaning of its rules, and errors with the number of the faulty line."""

import pytest
from walks import follows, may_end

from sharpi.constraints.grammars import Grammars
from sharpi.errors import GrammarError
from sharpi.tokenizer.tokenizer import Tokenizer

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" ( [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


@pytest.fixture(scope="module")
def grammars(demo: Tokenizer) -> Grammars:
    return Grammars(demo)


@pytest.mark.parametrize(
    ("grammar", "text", "fits"),
    [
        ('root ::= "yes" | "no"', "no", True),
        ('root ::= "yes" | "no"', "not", False),
        ('root ::= [a-z]+ "x"', "abcx", True),
        ('root ::= word "x"\nword ::= [a-z]+', "abcx", True),
        ('root ::= "a" "bc" | "ab" "d"', "abc", True),
        ('root ::= "a" root "b" | ""', "aabb", True),
        ('root ::= "a" root "b" | ""', "aab", False),
        ("root ::= [^a-c]{2,3} # a remark\n\n", "z\n", True),
        ("root ::= [^a-c]{2,3}", "zb", False),
        (r'root ::= "\u00e9\U0001F600\x41\"\\" . [\]\[^-]', '\u00e9\U0001f600A"\\\n-', True),
        ('root ::= (\n "a"\n | some-Name )+ "c"?\nsome-Name ::= "b"', "abac", True),
        ('root ::= "a"{2} "b"{1,} "c"{0,2}', "aabbb", True),
        ('root ::= "a"{2} "b"{1,}', "aaab", False),
        (JSON, '{"a": [1, -2.5e3, {"b": "x\\u00e9\\n \U0001f600"}], "c": null}', True),
        (JSON, '{"a": }', False),
        (JSON, '{"a": "\n"}', False),
    ],
)
def test_what_rules_mean(
    grammars: Grammars, demo: Tokenizer, grammar: str, text: str, fits: bool
) -> None:
    constraint = grammars.gbnf(grammar)
    assert (follows(constraint, demo, text) and may_end(constraint, demo)) is fits


def test_a_token_by_its_id(gemma: Tokenizer) -> None:
    call = gemma.id_of("<call>")
    constraint = Grammars(gemma).gbnf(f'root ::= <[{call}]> "a" | <call> "b"')
    constraint.accept(call or 0)
    assert follows(constraint, gemma, "b")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "no rule `root`"),
        ('other ::= "a"', "no rule `root`"),
        ('root ::= "a" absent', "'absent'"),
        ('root ::= "a"\nroot2 = "b"', "line 2"),
        ("root ::= (", "`)` was expected"),
        ('root ::= "a', "line 1: not GBNF"),
        ("root ::= []", "empty"),
        (r'root ::= "\q"', r"\q is not a GBNF escape"),
        (r'root ::= "\uD800"', "is not a character"),
        ('root ::= "a"{5,2}', "5 to 2"),
        ('root ::= "a"{2 3}', "a repetition is"),
        ("root ::= " + "(" * 9999, "too deeply"),
        ('root ::= "a"' + "*" * 9999, "too many repetitions"),
        ("root ::= root", "no text satisfies"),
        ("root ::= [z-a]", "range"),
        ("root ::= <absent>", "unknown special token"),
        ('root ::= "\ud800"', "surrogates"),
        ("root ::= a0\n" + "\n".join(f"a{n} ::= a{n + 1}" for n in range(9000)), "'a9000'"),
        (
            "root ::= a0\n"
            + "\n".join(f"a{n} ::= a{n + 1}" for n in range(9000))
            + '\na9000 ::= "x"',
            "too complex",
        ),
    ],
)
def test_what_is_refused(grammars: Grammars, grammar: str, message: str) -> None:
    with pytest.raises(GrammarError) as caught:
        grammars.gbnf(grammar)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
