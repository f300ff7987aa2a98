"""Which form comes in and which goes out: `?from=`/`?to=`, `Content-Type` and `Accept` (RFC 9110).

The rules stand in the HTTP contract; nothing here knows a single codec, only their media types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from starlette.datastructures import Headers

from ..codecs.forms import SHORT_NAME_ONLY, TAB_SEPARATED
from ..domain.tensor import MAX_DIM
from ..errors import MalformedInput, NotAcceptable, UnknownForm

FormT = TypeVar("FormT", bound=str)

#: Form -> media types, in the order that breaks ties.
Forms = Mapping[FormT, tuple[str, ...]]

_OCTETS: Final = "application/octet-stream"
#: Of a body in the form `oip`: how long the JSON in front of it is.
JSON_LENGTH: Final = "inference-header-content-length"
#: What `curl -d` and Java's URLConnection send without being asked: no statement about the body.
_NO_STATEMENT: Final = frozenset({"", "application/x-www-form-urlencoded"})


@dataclass(frozen=True)
class Chosen(Generic[FormT]):
    """An output format.

    Attributes:
        media_type: as the client will see it: what it asked for, where aliases exist.
        explicit: the client named this form, by `to=` or by a media type of its own.
    """

    form: FormT
    media_type: str
    explicit: bool


def choose_input(
    forms: Forms[FormT],
    headers: Headers,
    *,
    from_: str | None,
    default: FormT | None,
    raw_declared: bool = False,
) -> FormT:
    """The form of the body.

    Args:
        forms: what the route accepts.
        headers: of the request.
        from_: the query parameter `from`, which beats any Content-Type.
        default: the form of a body without a Content-Type; None where the route has none.
        raw_declared: `?dtype=` is given, which makes octets a raw tensor.

    Raises:
        UnknownForm: not a form that this route accepts.
        MalformedInput: a Content-Type that cannot be read, or a charset other than UTF-8.
    """
    if from_ is not None:
        return _by_short_name(forms, from_, "from")
    media_type = _content_type(headers)
    if JSON_LENGTH in headers and (media_type == _OCTETS or media_type in _NO_STATEMENT):
        return _named(forms, "oip", "The binary format of the Open Inference Protocol")
    if media_type == _OCTETS:
        if raw_declared:
            return _named(forms, "raw", "A raw tensor")
        if default is None and "raw" in forms:
            what = "application/octet-stream without dtype and shape (add ?dtype=&shape= for a raw tensor)"
            raise _unsupported(forms, what)
        media_type = ""
    if media_type in _NO_STATEMENT:
        if default is not None:
            return default
        raise _unsupported(forms, "A body without a Content-Type that names its format")
    for form, media_types in forms.items():
        if media_type in media_types and form not in SHORT_NAME_ONLY:
            return form
    raise _unsupported(forms, f"Content-Type {media_type[:100]!r}")


def has_tabs(headers: Headers, from_: str | None) -> bool:
    """Whether a CSV body is said to have tabs in place of commas."""
    return (_content_type(headers) if from_ is None else from_) == TAB_SEPARATED


def _content_type(headers: Headers) -> str:
    if len(values := headers.getlist("content-type")) > 1:
        raise MalformedInput("More than one Content-Type.", code="invalid_content_type")
    media_type, *parameters = (values[0] if values else "").split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
            raise UnknownForm(
                f"charset {value.strip()[:40]!r} is not supported; send UTF-8.", code="unsupported_charset"
            )
        if name.strip().lower() == "header" and value.strip().strip('"').lower() == "absent":  # RFC 4180
            raise UnknownForm(
                "CSV without a header is not supported, since its columns have no names. Put one in front.",
                code="unsupported_header",
            )
    return media_type.strip().lower()


def _named(forms: Forms[FormT], name: str, what: str) -> FormT:
    for form in forms:
        if form == name:
            return form
    raise _unsupported(forms, what)


def parse_json_bytes(headers: Headers) -> int | None:
    """The length of the JSON in front of an Open Inference body; None without the header.

    Raises:
        MalformedInput: not a decimal number from 0 to 2^63-1 (`invalid_json_length`).
    """
    texts = headers.getlist(JSON_LENGTH)
    if not texts:
        return None
    text = texts[0].strip()
    # Nineteen digits hold every int64; longer ones need not be converted to be refused.
    if len(texts) == 1 and len(text) <= 19 and text.isascii() and text.isdigit() and int(text) <= MAX_DIM:
        return int(text)
    raise MalformedInput(
        f"Inference-Header-Content-Length {', '.join(texts)[:40]!r} is not one number of bytes: that of "
        "the JSON in front of the tensors.",
        code="invalid_json_length",
    )


def _by_short_name(forms: Forms[FormT], name: str, parameter: str) -> FormT:
    for form, media_types in forms.items():
        is_media_type = name in media_types and name != _OCTETS and form not in SHORT_NAME_ONLY
        if form == name or is_media_type:
            return form
    kind = UnknownForm if parameter == "from" else NotAcceptable
    raise kind(f"{parameter}={name[:40]!r} is not served here. Use one of: {', '.join(forms)}.")


def _unsupported(forms: Forms[FormT], what: str) -> UnknownForm:
    accepted = [media_type for form in forms for media_type in forms[form][:1] if form not in SHORT_NAME_ONLY]
    return UnknownForm(
        f"{what} is not accepted here. Send one of: {', '.join(dict.fromkeys(accepted))}; "
        f"or name the format with ?from= ({', '.join(forms)}).",
        extra={"accepted": list(dict.fromkeys(accepted))},
    )


def choose_output(
    forms: Forms[FormT],
    headers: Headers,
    *,
    to: str | None,
    default: FormT,
    octets_are: FormT | None = None,
) -> Chosen[FormT]:
    """The form of the answer: `to=`, else the highest quality in Accept; ties go to the default.

    Args:
        forms: what the route can answer.
        headers: of the request.
        to: the query parameter.
        default: the route's own form.
        octets_are: the form behind `application/octet-stream` here; its bytes, under that name.

    Raises:
        NotAcceptable: nothing that the client accepts can be had.
    """
    if to is not None:
        form = _by_short_name(forms, to, "to")
        return Chosen(form, to if to in forms[form] else forms[form][0], explicit=True)
    ranges = parse_accept(",".join(headers.getlist("accept")))
    best: tuple[float, Chosen[FormT]] | None = None
    for form, media_type in _candidates(forms, default, octets_are):
        aliases = (_OCTETS,) if media_type == _OCTETS else forms[form]
        quality, exact = _quality(media_type, aliases, ranges)
        candidate = Chosen(form, media_type, explicit=exact and media_type != _OCTETS)
        # Strictly better only: the order of the candidates decides between equals.
        if quality > 0 and (best is None or quality > best[0]):
            best = (quality, candidate)
    if best is None:
        served = list(dict.fromkeys(media_type for _, media_type in _candidates(forms, default, octets_are)))
        raise NotAcceptable(
            f"None of what Accept allows can be had here. Served: {', '.join(served)}; "
            f"or name the format with ?to= ({', '.join(forms)}).",
            extra={"served": served},
        )
    return best[1]


def _candidates(forms: Forms[FormT], default: FormT, octets_are: FormT | None) -> list[tuple[FormT, str]]:
    """Form and media type, the default first, then in the order of the table."""
    ordered = [default, *(form for form in forms if form != default)]
    found = [
        (form, media_type)
        for form in ordered
        if form not in SHORT_NAME_ONLY
        for media_type in forms[form]
        if media_type != _OCTETS
    ]
    return found if octets_are is None else [*found, (octets_are, _OCTETS)]


def parse_accept(value: str) -> list[tuple[str, float]]:
    """Media ranges and their quality; none at all means anything.

    Raises:
        MalformedInput: as `parse_weights`.
    """
    return parse_weights(value, "Accept") or [("*/*", 1.0)]


def parse_weights(value: str, field: str) -> list[tuple[str, float]]:
    """The items of a header such as Accept, in lower case, and their quality (RFC 9110, section 12.4.2).

    Raises:
        MalformedInput: a quality that is not a number from 0 to 1 (`invalid_accept`).
    """
    items = []
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, text = parameter.partition("=")
            if key.strip() == "q":
                quality = _parse_quality(text.strip(), field)
        items.append((name, quality))
    return items


def _parse_quality(text: str, field: str) -> float:
    try:
        quality = float(text) if len(text) <= 5 else -1.0
    except ValueError:
        quality = -1.0
    if not 0.0 <= quality <= 1.0:
        raise MalformedInput(f"{field} has q={text[:20]!r}; use 0 to 1.", code="invalid_accept")
    return quality


def _quality(
    media_type: str, aliases: tuple[str, ...], ranges: list[tuple[str, float]]
) -> tuple[float, bool]:
    """The quality of the most specific range that covers `media_type`, and whether it names it.

    A range that names one of the aliases of a form speaks for the form: `*/*` does not bring back
    under another name what was refused under one.
    """
    family = media_type.partition("/")[0] + "/*"
    named = [media_range for media_range, _ in ranges if media_range in aliases]
    for wanted in (media_type,) if named else (family, "*/*"):
        for media_range, quality in ranges:
            if media_range == wanted:
                return quality, wanted == media_type
    return 0.0, False
