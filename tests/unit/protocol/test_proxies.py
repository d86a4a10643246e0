"""Proxies of the environment, by the rules of Go's ProxyFromEnvironment."""

from __future__ import annotations

import pytest

from multus.protocol.proxies import proxy_variable


def test_no_variable_is_no_proxy() -> None:
    assert proxy_variable("https", "10.0.0.1", 443, {"HTTP_PROXY": "http://p", "HTTPS_PROXY": ""}) == ""


@pytest.mark.parametrize(
    ("scheme", "name"),
    [("https", "HTTPS_PROXY"), ("https", "https_proxy"), ("http", "HTTP_PROXY"), ("http", "http_proxy")],
)
def test_variable_of_the_scheme_is_named(scheme: str, name: str) -> None:
    assert proxy_variable(scheme, "api.example", 443, {name: "http://p"}) == name


@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [
        ("localhost", ""),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("api.example", "*"),
        ("api.example", "x, api.example"),
        ("API.example", "example"),
        ("api.example", ".example"),
        ("api.example", "*.example"),
        ("api.example", "API.EXAMPLE:443"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "bad/x,10.0.0.0/8"),
        ("fd00::1", "fd00::/64"),
        ("fd00::1", "fd00::1"),
        ("fd00::1", "[fd00::1]:443"),
    ],
)
def test_server_is_excepted(host: str, no_proxy: str) -> None:
    assert proxy_variable("https", host, 443, {"HTTPS_PROXY": "http://p", "NO_PROXY": no_proxy}) == ""


@pytest.mark.parametrize(
    ("host", "no_proxy"),
    [
        ("api.example", ""),
        ("api.example", ","),
        ("example", ".example"),
        ("notexample", "example"),
        ("api.example", "api.example:6443"),
        ("10.0.0.1", "0.0.1"),
        ("10.0.0.1", "11.0.0.0/8"),
        ("fd00::1", "[fd00::1]:6443"),
    ],
)
def test_server_is_not_excepted(host: str, no_proxy: str) -> None:
    assert proxy_variable("https", host, 443, {"HTTPS_PROXY": "http://p", "no_proxy": no_proxy}) == "HTTPS_PROXY"
