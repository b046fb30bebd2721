"""Invariant: only pages that the server itself gave, or that were named, may talk to it; programs may, too."""

import pytest
from websockets.datastructures import Headers

from transducer_gn.common.errors import UserError
from transducer_gn.config import ServingConfig
from transducer_gn.serving.access import allowed_origins, refused_headers

ORIGINS = allowed_origins(ServingConfig(origins=["https://speech.example.org"]), 8765)


@pytest.mark.parametrize(
    ("host", "origin", "problem"),
    [
        ("127.0.0.1:8765", None, None),
        ("localhost:8765", "http://localhost:8765", None),
        ("[::1]:8765", "http://127.0.0.1:8765", None),
        ("speech.example.org", "https://speech.example.org", None),
        ("127.0.0.1:8765", "https://example.org", "pages of https://example.org"),
        ("127.0.0.1:8765", "http://127.0.0.1:8000", "pages of http://127.0.0.1:8000"),
        ("127.0.0.1:8765", "https://127.0.0.1:8765", "pages of https"),
        ("127.0.0.1:8765", "null", "pages of null"),
        # A page that has given its own name to this machine's address.
        ("example.org:8765", "http://example.org:8765", "not known as example.org:8765"),
        (None, None, "not known as nothing"),
    ],
)
def test_who_may_connect(host: str | None, origin: str | None, problem: str | None) -> None:
    headers = Headers([(name, value) for name, value in (("Host", host), ("Origin", origin)) if value is not None])
    found = refused_headers(headers, ORIGINS)
    assert found is None if problem is None else problem in found


def test_browsers_do_not_name_the_usual_port() -> None:
    origins = allowed_origins(ServingConfig(), 80)
    assert refused_headers(Headers([("Host", "localhost"), ("Origin", "http://localhost")]), origins) is None


def test_of_two_origins_both_must_be_allowed() -> None:
    headers = Headers([("Host", "localhost:8765"), ("Origin", "http://localhost:8765"), ("Origin", "http://a.org")])
    assert "a.org" in refused_headers(headers, ORIGINS)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"port": 70000}, "--port"),
        ({"streams": 0}, "--streams"),
        ({"message_bytes": 0}, "--message-bytes"),
        ({"idle": -1.0}, "--idle"),
        ({"drain": -1.0}, "--drain"),
        ({"origins": ["example.org"]}, "--origins"),
        ({"origins": ["https://example.org/"]}, "--origins"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        ServingConfig(**settings)
