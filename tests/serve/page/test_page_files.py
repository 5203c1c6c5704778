"""The page's files as they are served: types, headers, and no path beyond the table."""

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sharpi.resources import page_folder
from sharpi.serve.http.endpoint import EndpointTable, page_endpoints

PATHS = sorted(page.path for page in page_endpoints())
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=EndpointTable(page_endpoints()).routes))


# Of kinds of elements, and in a comment; none is fetched.
NAMES = {
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1998/Math/MathML",
    "https://a.b/c_(d",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_file(path: str, client: TestClient) -> None:
    response = client.get(path)
    suffix = path.rpartition(".")[2]
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(TYPES.get(suffix, "text/html"))
    assert response.headers["x-content-type-options"] == "nosniff"
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert int(response.headers["content-length"]) == len(response.content) > 0


def test_what_a_browser_has_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get("/", headers={"If-None-Match": '"older"'}).status_code == 200
    assert client.head("/").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/index.html",
        "/page/js/",
        "/page/../page_files.py",
        "/page/%2e%2e/page_files.py",
        "/page/js/..%2f..%2f..%2fpage_files.py",
        "/page//etc/passwd",
        "/page/js/app.js/",
        "/page/js/app.js%00.svg",
    ],
)
def test_nothing_else_is_there(path: str, client: TestClient) -> None:
    assert client.get(path, follow_redirects=False).status_code in (404, 307)
    assert client.get(path).status_code in (200, 404)
    assert b"PageFile" not in client.get(path).content


def test_the_page_is_whole_and_only_itself() -> None:
    folder = page_folder()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == len(PATHS), "a file has a suffix that is not served"
    for path in files:
        text = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert not re.search(r"\sstyle=|\son\w+=|<script>|javascript:", text), path.name
        outside = re.findall(r"https?://[^\s\"')]+", text)
        assert set(outside) <= NAMES, path.name
        for asked in re.findall(r"(?:from|import\() ?\"(\.\.?/[\w./]+)\"", text):
            assert (path.parent / asked).resolve().is_file()
    index = (folder / "index.html").read_text("utf-8")
    for asked in re.findall(r"(?:href|src)=\"(page/[^\"]+)\"", index):
        assert f"/{asked}" in PATHS
    ids = re.findall(r"\sid=\"([\w-]+)\"", index)
    assert len(ids) == len(set(ids))
    scripts = "".join(path.read_text("utf-8") for path in folder.rglob("*.js"))
    assert set(re.findall(r"element\(\"([\w-]+)\"\)", scripts)) <= set(ids)
