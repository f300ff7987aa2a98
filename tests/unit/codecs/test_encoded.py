from app.codecs.compression.encoded import Encoded, headers_of


def test_the_headers_are_there_before_the_first_byte_and_most_forms_have_none() -> None:
    encoded = Encoded(iter([b"a", b"b"]), {"Inference-Header-Content-Length": "1"})
    assert headers_of(encoded) == {"Inference-Header-Content-Length": "1"}
    assert list(encoded) == [b"a", b"b"]
    assert headers_of(iter([b"a"])) == {}
