"""Access by keys, by origins of web pages and by host names."""

import pytest

from sharpi.serve.http.access import Access
from sharpi.serve.http.errors import ApiError

PATH = "/v1/chat/completions"


def refusal(access: Access, path: str = PATH, **headers: str) -> int | None:
    """Returns the status of the refusal; None if access is allowed."""
    try:
        access.require(path, {name.replace("_", "-"): value for name, value in headers.items()})
    except ApiError as error:
        return error.status
    return None


class TestKeys:
    access = Access(keys=["first", "second"], status_key="status")

    @pytest.mark.parametrize(
        "headers",
        [
            {"authorization": "Bearer first"},
            {"authorization": "bearer second"},
            {"x_api_key": "second"},
        ],
    )
    def test_let_in(self, headers: dict[str, str]) -> None:
        assert refusal(self.access, **headers) is None

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"authorization": "Bearer "},
            {"authorization": "Basic first"},
            {"authorization": "first"},
            {"x_api_key": "firs"},
            {"x_api_key": "first "},
            {"x_api_key": "férst"},
            {"x_api_key": "status"},
        ],
    )
    def test_refused(self, headers: dict[str, str]) -> None:
        assert refusal(self.access, **headers) == 401

    @pytest.mark.parametrize("path", ["/", "/health", "/page/js/app.js"])
    def test_page_and_health_are_public(self, path: str) -> None:
        assert refusal(self.access, path) is None

    @pytest.mark.parametrize("path", ["/metrics", "/props", "/experts/live", "/page", "/pages/x"])
    def test_nothing_else_is(self, path: str) -> None:
        assert refusal(self.access, path) == 401

    def test_the_status_key_opens_props_alone(self) -> None:
        assert refusal(self.access, "/props", authorization="Bearer status") is None
        assert refusal(self.access, "/metrics", authorization="Bearer status") == 401

    def test_without_keys_all_come_in(self) -> None:
        assert refusal(Access()) is None


class TestOrigins:
    def test_pages_of_the_server_itself(self) -> None:
        assert refusal(Access(), host="127.0.0.1:8080", origin="http://127.0.0.1:8080") is None

    @pytest.mark.parametrize(
        "origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "nonsense"]
    )
    def test_others_are_refused(self, origin: str) -> None:
        assert refusal(Access(), host="127.0.0.1:8080", origin=origin) == 403

    def test_unless_they_are_let(self) -> None:
        access = Access(origins=["https://app.example"])
        assert refusal(access, origin="https://app.example") is None
        assert refusal(access, origin="https://app.example.evil") == 403
        assert refusal(Access(origins=["*"]), origin="https://evil.example") is None

    def test_who_has_a_key_may_come_from_anywhere(self) -> None:
        access = Access(keys=["key"])
        assert refusal(access, x_api_key="key", origin="https://proxy.example") is None
        assert refusal(access, origin="https://evil.example") == 401


class TestHostNames:
    access = Access(host_names=["127.0.0.1"])

    @pytest.mark.parametrize(
        "host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:80", "127.8.9.1"]
    )
    def test_of_this_machine(self, host: str) -> None:
        assert refusal(self.access, host=host) is None

    @pytest.mark.parametrize(
        "host", ["evil.example:8080", "127.0.0.1.evil.example", "", "[::1", "127.1.evil.com"]
    )
    def test_a_name_that_was_rebound_is_refused(self, host: str) -> None:
        assert refusal(self.access, host=host) == 403
