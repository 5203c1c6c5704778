"""Answers as Markdown, in which nothing becomes active content."""

import re
import time
from typing import Any

import pytest
from browser_tab import BrowserTab
from scripted_server import MARKDOWN, ScriptedServer, words

pytestmark = pytest.mark.usefixtures("browser")
DONE = ".message.assistant:not(.is-answering)"

HOSTILE = """<script>window.broken = 1</script> <img src=x onerror="window.broken = 1">

[run](javascript:window.broken=1) [data](data:text/html,<script>1</script>) <b>bold</b>
![seen](https://example.org/pixel.png) [tab](java\tscript:alert(1)) [vb](VBScript:x)
<a href="javascript:window.broken=1">y</a>

```html "><script>window.broken = 1</script>
</code></pre><script>window.broken = 1</script>
```

| <img src=x onerror=window.broken=1> | b |
|---|---|
| <svg onload=window.broken=1> | d |
"""


@pytest.fixture
def render(browser: BrowserTab) -> Any:
    """Returns the HTML of a text, rendered by the page's own module."""

    def made(text: str) -> str:
        script = """async (text) => {
          const { MarkdownView } = await import('/page/js/markdown/view.js');
          const box = document.createElement('div');
          const view = new MarkdownView(box);
          view.show(text);
          view.finish();
          return box.innerHTML.replaceAll(' target="_blank" rel="noopener noreferrer"', '');
        }"""
        return str(browser.page.evaluate(script, text))

    return made


def test_an_answer_is_rendered(page: Any, server: ScriptedServer, say: Any) -> None:
    server.answers["md"] = words(MARKDOWN)
    say("md")
    page.wait_for_selector(DONE)
    answer = page.locator(".answer")
    assert answer.locator("h3").inner_text() == "A heading"
    assert answer.locator("em").inner_text() == "emphasis"
    assert answer.locator("strong").inner_text() == "strong words"
    assert answer.locator("p > code").inner_text() == "inline code"
    assert answer.locator("a").get_attribute("href") == "https://example.org/a_(b)"
    assert answer.locator("ol > li").count() == 2
    assert answer.locator("ol > li > ul > li").all_inner_texts() == ["nested", "twice"]
    assert answer.locator("td.right").all_inner_texts() == ["412", "96"]
    assert answer.locator("pre").inner_text().startswith("def greet(name):\n    return")
    assert answer.locator("blockquote").inner_text() == "A quotation."


def test_code_is_copied(page: Any, server: ScriptedServer, say: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    server.answers["md"] = words(MARKDOWN)
    say("md")
    page.wait_for_selector(DONE)
    page.click(".code button")
    page.wait_for_selector(".code button:has-text('Copied')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == 'def greet(name):\n    return f"hello, {name}"'


def test_hostile_text_is_text(page: Any, server: ScriptedServer, say: Any) -> None:
    server.answers["hostile"] = [{"reasoning_content": HOSTILE}, *words(HOSTILE)]
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    say(HOSTILE)
    page.wait_for_selector(DONE)
    say("hostile")
    page.wait_for_selector(f"{DONE} >> nth=1")
    page.wait_for_timeout(100)
    assert page.evaluate("window.broken") is None
    found = page.locator("#messages :is(script, img, svg, b, iframe, style, [onerror], [onload])")
    assert found.count() == 0
    schemes = page.locator("#messages a").evaluate_all("all => all.map(each => each.protocol)")
    assert set(schemes) <= {"https:"}
    assert "<script>window.broken = 1</script>" in page.inner_text(".answer >> nth=1")
    assert all(url.startswith(server.url) for url in asked), "nothing outside is fetched"


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a\nb", "<p>a<br>b</p>"),
        ("**a *b***", "<p><strong>a <em>b</em></strong></p>"),
        ("***a***", "<p><strong><em>a</em></strong></p>"),
        ("~~a~~ snake_case_name 2*3*4", "<p><del>a</del> snake_case_name 2<em>3</em>4</p>"),
        ("a * b * c **", "<p>a * b * c **</p>"),
        ("`` a`b `` and `c", "<p><code>a`b</code> and `c</p>"),
        ("**`**`**", "<p><strong><code>**</code></strong></p>"),
        (r"\*a\* \<b\>", "<p>*a* &lt;b&gt;</p>"),
        ("see https://a.org/b.", '<p>see <a href="https://a.org/b">https://a.org/b</a>.</p>'),
        ("<https://a.org>", '<p><a href="https://a.org">https://a.org</a></p>'),
        ("[x](ftp://a.org)", "<p>[x](ftp://a.org)</p>"),
        ("[**x**](https://a.org 't')", '<p><a href="https://a.org">**x**</a></p>'),
        ("# a #\n---\nb", "<h3>a</h3><hr><p>b</p>"),
        ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
        ("- a\n\n  more\n- b", "<ul><li>a<p>more</p></li><li>b</li></ul>"),
        ("* a\n  * b\n    * c", "<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li></ul>"),
        ("1. a\n  - b\n2. c", "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>"),
        ("> a\n> > b", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote>"),
        ("a | b\nc", "<p>a | b<br>c</p>"),
        ("", ""),
    ],
)
def test_markdown(render: Any, text: str, html: str) -> None:
    assert render(text) == html


@pytest.mark.speed
@pytest.mark.parametrize(
    "text",
    ["*a **b " * 8000, "[" * 40000, "`" * 3 + "a`` " * 15000, "> " * 20000, "- " * 20000,
     "|" * 40000, " " * 40000 + "#", "![](" * 10000, "_a " * 20000, "\\" * 40000,
     "".join("`" * n + "a" for n in range(300)), "http://" * 8000, "- a\n" * 8000],
    ids=range(13),
)  # fmt: skip
def test_no_text_takes_long(render: Any, text: str) -> None:
    start = time.perf_counter()
    render(text)
    assert time.perf_counter() - start < 2.0


def test_a_growing_text_is_only_rendered_where_it_grows(browser: BrowserTab) -> None:
    script = """async () => {
      const { MarkdownView } = await import('/page/js/markdown/view.js');
      const box = document.createElement('div');
      const view = new MarkdownView(box);
      const grow = (text) => { view.show(text); view.finish(); };
      grow('first\\n\\nsec');
      const [first, second] = box.children;
      grow('first\\n\\nsecond\\n\\n- third');
      return [box.children[0] === first, box.children[1] === second, box.children.length];
    }"""
    assert browser.page.evaluate(script) == [True, False, 3]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            r"\(a^2+b_1\)",
            "<msup><mi>a</mi><mn>2</mn></msup><mo>+</mo><msub><mi>b</mi><mn>1</mn></msub>",
        ),
        (r"\(\frac{1}{2}\)", "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>"),
        (r"\(\sqrt[3]{x}\)", "<mroot><mrow><mi>x</mi></mrow><mrow><mn>3</mn></mrow></mroot>"),
        (r"\(\alpha \le \infty\)", "<mi>\u03b1</mi><mo>\u2264</mo><mo>\u221e</mo>"),
        (
            r"$$\sum_{i=1}^n i$$",
            "<munderover><mo>\u2211</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
            "<mi>i</mi>",
        ),
        (r"\[\left( x \right]\]", "<mrow><mo>(</mo><mi>x</mi><mo>]</mo></mrow>"),
        (
            r"\(\text{if } x \in \mathbb{R}\)",
            "<mtext>if&nbsp;</mtext><mi>x</mi><mo>\u2208</mo><mi>\u211d</mi>",
        ),
        (
            r"\[\begin{cases} 1 & a \\ 0 & b \end{cases}\]",
            "<mrow><mo>{</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mi>a</mi></mtd></mtr>"
            "<mtr><mtd><mn>0</mn></mtd><mtd><mi>b</mi></mtd></mtr></mtable></mrow>",
        ),
        (r"\(f'(x) = -1\)", "<msup><mi>f</mi><mo>\u2032</mo></msup><mo>(</mo><mi>x</mi><mo>)</mo>"
         "<mo>=</mo><mo>\u2212</mo><mn>1</mn>"),
    ],
)  # fmt: skip
def test_mathematics(render: Any, text: str, expected: str) -> None:
    shown = render(f"so {text}.")
    assert (
        re.sub(r"<math[^>]*>", "<math>", shown).replace(' stretchy="false"', "")
        == f"<p>so <math>{expected}</math>.</p>"
    )
    assert (' display="block"' in shown) == (not text.startswith(r"\("))


@pytest.mark.parametrize("text", [r"\(\unknown{x}\)", r"\(}\)", r"\[\frac{1}\]", r"\(x_\)"])
def test_tex_that_is_not_known_is_shown_as_it_is_written(render: Any, text: str) -> None:
    assert render(text) == f"<p><code>{text}</code></p>"


def test_mathematics_stays_text(render: Any) -> None:
    hostile = r"\(\text{<img src=x onerror=alert(1)>}\)"
    assert "&lt;img" in render(hostile)
    assert render("costs $5 and $6") == "<p>costs $5 and $6</p>"


@pytest.mark.speed
@pytest.mark.parametrize("text", [r"\(" * 100_000 + "x" + r"\)", r"\(" + "{" * 3000 + r"\)"])
def test_mathematics_takes_linear_time(render: Any, text: str) -> None:
    begin = time.monotonic()
    render(text)
    assert time.monotonic() - begin < 15
