"""The header of an NPY array: magic, version, length, and a Python dictionary as text.

Source: `numpy.lib.format`, versions 1.0, 2.0 and 3.0. numpy evaluates the dictionary as a Python
literal; here a scanner reads exactly the three entries it may have, since 4,000 parentheses or
9,000 minus signs make the interpreter's own parser give up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ...domain.dtypes import BYTES, DTYPES, TEXT, DType
from ...domain.limits import Limits
from ...domain.tensor import Shape, check_shape
from ...errors import LimitExceeded, MalformedInput, UnknownForm, UnprocessableInput
from ...runtime.streams import ByteStream, read_exactly

__all__ = ["MAGIC", "MAX_NUMPY_RANK", "ElementType", "NpyHeader", "read_npy_header", "serialize_npy_header"]

MAGIC: Final = b"\x93NUMPY"
#: numpy 2 reads no array of more dimensions (`NPY_MAXDIMS`).
MAX_NUMPY_RANK: Final = 64
#: Version -> size of the length field, encoding of the text.
_VERSIONS: Final[dict[bytes, tuple[int, str]]] = {
    b"\x01\x00": (2, "latin-1"),
    b"\x02\x00": (4, "latin-1"),
    b"\x03\x00": (4, "utf-8"),
}
#: numpy pads the header to a multiple of this, and leaves room for the first axis to grow to 21 digits.
_ALIGNMENT: Final = 64
_GROWTH_DIGITS: Final = 21

_BFLOAT16: Final = DTYPES["bfloat16"]
#: numpy's kind and size ("f4") -> dtype. Not bfloat16: numpy writes it as "V2", two bytes of anything.
_BY_CODE: Final[dict[str, DType]] = {
    dtype.numpy.str[1:]: dtype for dtype in DTYPES.values() if not dtype.is_string and dtype.in_numpy
} | {"?": DTYPES["bool"]}

#: Whitespace to Python; `\s` would take more.
_SPACE: Final = r"[\ \t\r\n\f]*"
_ENTRY: Final = re.compile(
    rf"""{_SPACE}(?P<quote>['"])(?P<key>\w{{1,16}})(?P=quote){_SPACE}:{_SPACE}
    (?P<value>'[^'\\]*' | "[^"\\]*" | True | False | \([^()]*\) | \[){_SPACE}(?P<comma>,?)""",
    re.VERBOSE | re.ASCII,
)
_OPEN: Final = re.compile(r"[ \t]*\{")
_CLOSE: Final = re.compile(rf"{_SPACE}\}}{_SPACE}")
#: Python 2 wrote long integers with an L.
_DIM: Final = re.compile(rf"{_SPACE}(0|[1-9][0-9]{{0,19}})L?{_SPACE}")
_DESCR: Final = re.compile(
    r"(?P<order>[<>|=]?)(?P<kind>[?a-zA-Z])(?P<size>\d{0,10})(?P<unit>\[[^\]]*\])?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class ElementType:
    """How the elements of an NPY array are stored.

    Attributes:
        dtype: `text` for numpy's "U" (UTF-32), `bytes` for "S"; otherwise numeric.
        itemsize: bytes an element takes in the file.
        big_endian: the byte order of the elements, or of their code points.
    """

    dtype: DType
    itemsize: int
    big_endian: bool = False


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an NPY header says.

    Attributes:
        fortran_order: the first axis varies fastest.
        num_bytes: of the header itself, magic included: where the content begins.
    """

    element: ElementType
    shape: Shape
    fortran_order: bool
    num_bytes: int


def read_npy_header(stream: ByteStream, limits: Limits, *, declared: DType | None = None) -> NpyHeader:
    """Read a header, and not a byte more.

    Args:
        declared: what the client says the elements are; only bfloat16 needs it.

    Raises:
        MalformedInput: not NPY (`not_npy`), cut short (`truncated`), or not a header that numpy
            writes (`invalid_npy_header`, `invalid_shape`).
        LimitExceeded: longer than `limits.max_npy_header_bytes` (`npy_header_too_large`).
        UnprocessableInput: objects, structures or bare bytes (`unsupported_dtype`).
        UnknownForm: dates and extended floats, which have no exact counterpart (`unsupported_dtype`).
    """
    start = read_exactly(stream, len(MAGIC) + 2, "the NPY magic")
    if not start.startswith(MAGIC):
        raise MalformedInput("This is not NPY: it does not begin with \\x93NUMPY.", code="not_npy", offset=0)
    version = _VERSIONS.get(start[len(MAGIC) :])
    if version is None:
        raise MalformedInput(
            f"NPY version {start[-2]}.{start[-1]} is not known; 1.0, 2.0 and 3.0 are.",
            code="invalid_npy_header",
            offset=len(MAGIC),
        )
    length_size, encoding = version
    length = int.from_bytes(read_exactly(stream, length_size, "the NPY header", offset=len(start)), "little")
    if length > limits.max_npy_header_bytes:
        raise LimitExceeded(
            f"The NPY header claims {length} bytes; at most {limits.max_npy_header_bytes} are allowed.",
            code="npy_header_too_large",
            offset=len(start),
        )
    begin = len(start) + length_size
    text = read_exactly(stream, length, "the NPY header", offset=begin)
    entries = _scan(text.decode(encoding, "replace"), begin)
    return NpyHeader(
        element=_parse_descr(entries["descr"][1:-1], declared, begin),
        shape=_parse_shape(entries["shape"], begin),
        fortran_order=entries["fortran_order"] == "True",
        num_bytes=begin + length,
    )


def serialize_npy_header(descr: str, shape: Shape) -> bytes:
    """The header that `numpy.save` writes for a C-ordered array of `descr` and `shape`."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH_DIGITS - len(str(shape[0])))
    begin = len(MAGIC) + 4
    padding = _ALIGNMENT - (begin + len(text) + 1) % _ALIGNMENT
    body = text.encode("latin-1") + b" " * padding + b"\n"
    return MAGIC + b"\x01\x00" + len(body).to_bytes(2, "little") + body


def _scan(text: str, offset: int) -> dict[str, str]:
    """The three entries as source text, checked for kind."""
    found: dict[str, str] = {}
    opening = _OPEN.match(text)
    position = opening.end() if opening else 0
    while entry := _ENTRY.match(text, position):
        key, value = entry["key"], entry["value"]
        if key == "descr" and value == "[":
            raise _unsupported(
                "a structure of several fields", "Send each field as an array of its own.", offset
            )
        if key in found:
            raise _invalid(f"names {key!r} twice", offset + position)
        found[key] = value
        position = entry.end()
        if not entry["comma"]:
            break
    if opening is None or _CLOSE.fullmatch(text, position) is None:
        raise _invalid(
            "is not a dictionary of strings, truth values and tuples of integers", offset + position
        )
    if found.keys() != _KINDS.keys():
        raise _invalid(f"must have the keys {sorted(_KINDS)}, not {sorted(found)}", offset)
    for key, kind in _KINDS.items():
        if found[key][0] not in kind:
            raise _invalid(f"has a value of the wrong type for {key!r}", offset)
    return found


#: Key -> how the source text of its value may begin.
_KINDS: Final = {"descr": "'\"", "fortran_order": "TF", "shape": "("}


def _parse_shape(text: str, offset: int) -> Shape:
    parts = text[1:-1].split(",")
    # One integer in parentheses is no tuple, and behind the last comma there need not be another one.
    is_tuple = len(parts) > 1 or not parts[0].strip()
    if not parts[-1].strip():
        parts.pop()
    dims = [_DIM.fullmatch(part) for part in parts]
    if not is_tuple or None in dims:
        raise MalformedInput(
            f"The shape in the NPY header, {text[:40]}, is not a tuple of integers from 0 to 2^63-1.",
            code="invalid_shape",
            offset=offset,
        )
    return check_shape([int(dim[1]) for dim in dims if dim], offset=offset)


def _parse_descr(descr: str, declared: DType | None, offset: int) -> ElementType:
    match = _DESCR.fullmatch(descr)
    if match is None:
        raise _invalid(f"has the unreadable descr {descr[:40]!r}", offset)
    kind, size, big_endian = match["kind"], match["size"], match["order"] == ">"
    code = kind + size
    if match["unit"] is None and (dtype := _BY_CODE.get(code)) is not None:
        return ElementType(dtype, dtype.itemsize, big_endian)
    if kind in "SaU" and size and match["unit"] is None:
        text = kind == "U"
        return ElementType(TEXT if text else BYTES, int(size) * (4 if text else 1), big_endian)
    if code == "V2" and declared is _BFLOAT16:
        return ElementType(_BFLOAT16, 2, big_endian)
    raise _no_such_element(descr, code, offset)


def _no_such_element(descr: str, code: str, offset: int) -> UnprocessableInput | UnknownForm | MalformedInput:
    if code == "V2":
        return _unsupported(
            "two bytes of anything",
            "If they are bfloat16, say so: ?dtype=bfloat16 for tensors, a schema for rows.",
            offset,
        )
    if code[0] == "O":
        return _unsupported(
            "Python objects", "They would have to be unpickled; send plain numbers or strings.", offset
        )
    if code[0] == "V":
        return _unsupported(
            f"bare bytes ({descr[:40]})", "Send uint8, and the length as another axis.", offset
        )
    if code[0] in "mMfcg":
        return UnknownForm(
            f"NPY arrays of {descr[:40]} have no exact counterpart here. "
            f"Convert to one of: {', '.join(name for name, dtype in DTYPES.items() if dtype.in_numpy)}.",
            code="unsupported_dtype",
            offset=offset,
        )
    return _invalid(f"has the unknown descr {descr[:40]!r}", offset)


def _unsupported(what: str, hint: str, offset: int) -> UnprocessableInput:
    return UnprocessableInput(f"The NPY array holds {what}. {hint}", code="unsupported_dtype", offset=offset)


def _invalid(what: str, offset: int) -> MalformedInput:
    return MalformedInput(f"The NPY header {what}.", code="invalid_npy_header", offset=offset)
