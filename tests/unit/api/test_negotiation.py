"""Which form comes in and which goes out, by the rules of the HTTP contract."""

import pytest
from starlette.datastructures import Headers

from app.api.negotiation import Chosen, choose_input, choose_output, parse_accept, parse_json_bytes
from app.errors import MalformedInput, NotAcceptable, UnknownForm

FORMS = {
    "json": ("application/json",),
    "npy": ("application/x-npy",),
    "raw": ("application/octet-stream",),
    "tensorproto": ("application/protobuf", "application/x-protobuf"),
    "tfrecord": ("application/x-tfrecord",),
    "b64": ("application/json",),
}


def chosen_input(content_type: str | None = None, **options: object) -> str:
    headers = {} if content_type is None else {"content-type": content_type}
    arguments = {"from_": None, "default": None, **options}
    return choose_input(FORMS, Headers(headers), **arguments)  # type: ignore[arg-type]  # shorthand


def chosen_output(accept: str | None = None, **options: object) -> tuple[str, str, bool]:
    headers = {} if accept is None else {"accept": accept}
    arguments = {"to": None, "default": "tensorproto", "octets_are": "tensorproto", **options}
    chosen: Chosen[str] = choose_output(FORMS, Headers(headers), **arguments)  # type: ignore[arg-type]  # shorthand
    return chosen.form, chosen.media_type, chosen.explicit


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        ("application/json", "json"),
        ("Application/JSON; charset=UTF-8", "json"),
        ('application/json;charset="utf-8"', "json"),
        ("application/x-npy", "npy"),
        ("application/protobuf", "tensorproto"),
        ("application/x-protobuf", "tensorproto"),
    ],
)
def test_content_type_names_the_form(content_type: str, form: str) -> None:
    assert chosen_input(content_type) == form


def test_from_beats_content_type() -> None:
    assert chosen_input("application/json", from_="npy") == "npy"
    assert chosen_input("application/json", from_="b64") == "b64"
    assert chosen_input("application/json", from_="application/x-protobuf") == "tensorproto"
    with pytest.raises(UnknownForm):
        chosen_input("application/json", from_="application/octet-stream")


@pytest.mark.parametrize(
    "content_type", [None, "application/x-www-form-urlencoded", "application/octet-stream"]
)
def test_a_body_that_states_nothing_takes_the_default_or_is_refused(content_type: str | None) -> None:
    assert chosen_input(content_type, default="tensorproto") == "tensorproto"
    with pytest.raises(UnknownForm, match="from="):
        chosen_input(content_type)


def test_octets_with_a_dtype_are_raw() -> None:
    assert chosen_input("application/octet-stream", raw_declared=True, default="tensorproto") == "raw"


def test_octets_with_the_inference_header_are_not_taken_for_something_else() -> None:
    headers = Headers({"content-type": "application/octet-stream", "inference-header-content-length": "9"})
    with pytest.raises(UnknownForm, match="Open Inference"):
        choose_input(FORMS, headers, from_=None, default="tensorproto", raw_declared=True)


WITH_OIP = {**FORMS, "oip": ("application/octet-stream",), "safetensors": ("application/octet-stream",)}


@pytest.mark.parametrize(
    "content_type", [None, "application/octet-stream", "application/x-www-form-urlencoded"]
)
def test_the_inference_header_makes_an_unstated_body_oip(content_type: str | None) -> None:
    stated = {} if content_type is None else {"content-type": content_type}
    headers = Headers({**stated, "inference-header-content-length": "9"})
    for options in ({}, {"default": "tensorproto", "raw_declared": True}):
        arguments = {"from_": None, "default": None, **options}
        assert choose_input(WITH_OIP, headers, **arguments) == "oip"  # type: ignore[arg-type]  # shorthand


def test_stated_format_wins_over_the_inference_header() -> None:
    headers = Headers({"content-type": "application/json", "inference-header-content-length": "9"})
    assert choose_input(WITH_OIP, headers, from_=None, default=None) == "json"
    assert choose_input(WITH_OIP, headers, from_="npy", default=None) == "npy"


def test_octets_alone_are_never_oip_or_safetensors() -> None:
    octets = {"content-type": "application/octet-stream", "accept": "application/octet-stream"}
    with pytest.raises(UnknownForm) as caught:
        choose_input(WITH_OIP, Headers(octets), from_=None, default=None)
    assert "oip, safetensors" in caught.value.detail
    assert choose_output(WITH_OIP, Headers(octets), to=None, default="json", octets_are="raw").form == "raw"
    with pytest.raises(NotAcceptable):
        choose_output(WITH_OIP, Headers(octets), to=None, default="json")
    for form in ("oip", "safetensors"):
        assert choose_input(WITH_OIP, Headers(), from_=form, default=None) == form
        chosen = choose_output(WITH_OIP, Headers(octets), to=form, default="json")
        assert (chosen.form, chosen.media_type) == (form, "application/octet-stream")


def test_refusal_names_what_is_accepted() -> None:
    with pytest.raises(UnknownForm) as caught:
        chosen_input("text/yaml")
    assert "application/x-npy" in caught.value.detail
    assert caught.value.extra["accepted"] == [
        "application/json",
        "application/x-npy",
        "application/octet-stream",
        "application/protobuf",
        "application/x-tfrecord",
    ]


def test_another_charset_is_refused() -> None:
    with pytest.raises(UnknownForm, match="UTF-8"):
        chosen_input("application/json; charset=latin-1")


def test_csv_without_a_header_is_refused() -> None:
    with pytest.raises(UnknownForm, match="header"):
        chosen_input("text/csv; header=absent")
    assert chosen_input("application/json; header=present") == "json"


def test_two_content_types_are_refused() -> None:
    headers = Headers(raw=[(b"content-type", b"application/json"), (b"content-type", b"application/x-npy")])
    with pytest.raises(MalformedInput, match="More than one"):
        choose_input(FORMS, headers, from_=None, default=None)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, "tensorproto"),
        ("*/*", "tensorproto"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "tensorproto"),
        ("application/json", "json"),
        ("application/json;q=0.5, application/x-npy;q=0.6", "npy"),
        ("application/*;q=0.3, application/x-npy;q=0.2", "tensorproto"),
        ("application/x-npy, application/json", "json"),  # equal: the order of the table
        ("application/x-npy, */*", "tensorproto"),  # equal: the default
        ("*/*;q=0.1, application/protobuf;q=0", "json"),  # nor under its other name
        ("*/*;q=0.1, application/x-protobuf;q=0", "json"),
    ],
)
def test_accept_chooses_the_highest_quality(accept: str | None, form: str) -> None:
    assert chosen_output(accept)[0] == form


def test_the_answer_carries_the_name_that_was_asked_for() -> None:
    assert chosen_output("application/x-protobuf") == ("tensorproto", "application/x-protobuf", True)
    assert chosen_output("application/octet-stream") == ("tensorproto", "application/octet-stream", False)
    assert chosen_output("*/*") == ("tensorproto", "application/protobuf", False)
    assert chosen_output("application/octet-stream", octets_are="raw")[0] == "raw"


def test_to_beats_accept() -> None:
    assert chosen_output("application/json", to="npy") == ("npy", "application/x-npy", True)
    with pytest.raises(NotAcceptable, match="Use one of"):
        chosen_output(to="yaml")


def test_nothing_acceptable_names_what_is_served() -> None:
    with pytest.raises(NotAcceptable, match="application/x-npy"):
        chosen_output("image/png")
    with pytest.raises(NotAcceptable):
        chosen_output("*/*;q=0")


@pytest.mark.parametrize("accept", ["a/b;q=x", "a/b;q=1.1", "a/b;q=nan", "a/b;q=0.12345"])
def test_a_quality_that_is_none_is_refused(accept: str) -> None:
    with pytest.raises(MalformedInput, match="Accept"):
        parse_accept(accept)


@pytest.mark.parametrize(("text", "num_bytes"), [("0", 0), (" 17 ", 17), (str(2**63 - 1), 2**63 - 1)])
def test_the_length_of_the_json_is_a_number(text: str, num_bytes: int) -> None:
    assert parse_json_bytes(Headers({"Inference-Header-Content-Length": text})) == num_bytes
    assert parse_json_bytes(Headers({})) is None


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1.5", "0x10", "٣", str(2**63), "9" * 5000, "0" * 19 + "1", "1, 1"]
)
def test_a_length_of_the_json_that_is_none_is_refused(text: str) -> None:
    headers = Headers(raw=[(b"inference-header-content-length", text.encode("utf-8", "replace"))])
    with pytest.raises(MalformedInput) as caught:
        parse_json_bytes(headers)
    assert caught.value.code == "invalid_json_length"


def test_two_lengths_of_the_json_are_refused() -> None:
    with pytest.raises(MalformedInput, match="'1, 2'"):
        parse_json_bytes(Headers(raw=[(b"inference-header-content-length", text) for text in (b"1", b"2")]))
