"""Steps on text: characters, spaces, base64, and text as numbers."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np
from typing_extensions import override

from ..codecs import kernels
from ..codecs.columns import Column, Strings
from ..domain.dtypes import BYTES, INT64, TEXT, DType
from ..domain.feature import Feature
from ..domain.meaning import Meaning
from .step import RowsRefused, Step, Tools, ValuesRefused, changed, invalid, strings_of


class TextStep(Step):
    """A step that makes of each string another one."""

    takes_only: ClassVar[DType | None] = TEXT
    makes: ClassVar[DType | None] = TEXT
    #: What a byte becomes at most.
    growth: ClassVar[int] = 3

    @override
    def result(self, feature: Feature) -> Feature:
        if not feature.dtype.is_string or self.takes_only not in (None, feature.dtype):
            raise self.takes(feature, "bytes" if self.takes_only is BYTES else "text")
        return changed(feature, self.makes or feature.dtype)

    @abstractmethod
    def convert(self, string: bytes) -> bytes:
        """The string that another one becomes.

        Raises:
            ValueError: one that it does not take.
        """

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        strings = strings_of(column)
        # Each string becomes an object, and then another one.
        tools.lease.charge((1 + self.growth) * strings.nbytes + 128 * len(strings), f"The step {self.name}")
        converted: list[bytes] = []
        refused = np.zeros(len(strings), np.bool_)
        reason = ""
        for index, string in enumerate(strings.unpack()):
            try:
                converted.append(self.convert(string))
            except ValueError as error:
                refused[index] = True
                reason = reason or str(error)
        if refused.any():
            raise RowsRefused(ValuesRefused(refused, reason).by_row(column, num_rows))
        return replace(column, values=Strings.pack(converted))


#: Character sets for names of hosts, which take quadratic time, and for source code.
_NOT_READ: Final = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})


@dataclass(frozen=True, slots=True)
class Decode(TextStep):
    """Bytes in a character set -> text."""

    name = "decode"
    takes_only = BYTES
    charset: str = "utf-8"

    def __post_init__(self) -> None:
        try:
            found = codecs.lookup(self.charset)
        except (LookupError, ValueError):
            raise invalid(
                self.name, f"{self.charset[:64]!r} is no character set that is known here"
            ) from None
        if found.name in _NOT_READ:
            raise invalid(self.name, f"{self.charset!r} is not read here")
        if not found._is_text_encoding:  # noqa: SLF001  # there is no other way to tell base64 from a character set
            raise invalid(self.name, f"{self.charset[:64]!r} is no character set")

    @override
    def convert(self, string: bytes) -> bytes:
        try:
            return string.decode(self.charset).encode()
        except UnicodeError:
            raise ValueError(f"it is not {self.charset}") from None


#: Characters that neither compose with those before them nor change places: text may be cut before them.
#: ASCII and letters of the large scripts, which stand often enough.
CUT_BEFORE: Final = re.compile(
    "[\0-\x7f\u00c0-\u024f\u0391-\u03c9\u0400-\u0481\u05d0-\u05ea\u0621-\u063a\u0904-\u0939\u0e01-\u0e2e"
    "\u3041-\u3094\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]"
)
#: Normalized at once: Python keeps its lock meanwhile, and sorts combining marks in quadratic time.
_PIECE_CHARS: Final = 1024


@dataclass(frozen=True, slots=True)
class NormalizeText(TextStep):
    """`tf_text.normalize_utf8`."""

    name = "normalize_utf8"
    growth = 11  # U+FDFA
    normalization_form: Literal["NFC", "NFKC", "NFD", "NFKD"] = "NFKC"

    @override
    def convert(self, string: bytes) -> bytes:
        text, pieces, begin = string.decode(), list[str](), 0
        while begin < len(text):
            end = begin + 2 * _PIECE_CHARS
            if found := CUT_BEFORE.search(text, begin + _PIECE_CHARS, end):
                end = found.start()
            elif end < len(text):
                raise ValueError(
                    f"it has more than {_PIECE_CHARS} characters in a row that may be combining marks"
                )
            pieces.append(unicodedata.normalize(self.normalization_form, text[begin:end]))
            begin = end
        return "".join(pieces).encode()


@dataclass(frozen=True, slots=True)
class Lower(TextStep):
    """`tf.strings.lower(encoding="utf-8")`."""

    name = "lower"

    @override
    def convert(self, string: bytes) -> bytes:
        return string.decode().lower().encode()


@dataclass(frozen=True, slots=True)
class Strip(TextStep):
    """`tf.strings.strip`: ASCII spaces, tabs and line ends on both sides."""

    name = "strip"
    takes_only = None
    makes = None

    @override
    def convert(self, string: bytes) -> bytes:
        return string.strip(b" \t\n\r\v\f")


Alphabet = Literal["standard", "web_safe"]


@dataclass(frozen=True, slots=True)
class EncodeBase64(TextStep):
    """Bytes -> base64; `tf.io.encode_base64` is the web-safe alphabet, without padding by default."""

    name = "encode_base64"
    takes_only = None
    alphabet: Alphabet = "web_safe"
    pad: bool = False

    @override
    def convert(self, string: bytes) -> bytes:
        encode = base64.b64encode if self.alphabet == "standard" else base64.urlsafe_b64encode
        encoded = encode(string)
        return encoded if self.pad else encoded.rstrip(b"=")


@dataclass(frozen=True, slots=True)
class DecodeBase64(TextStep):
    """Base64 -> bytes, with padding or without; anything else is an error."""

    name = "decode_base64"
    takes_only = None
    makes = BYTES
    alphabet: Alphabet = "web_safe"

    @override
    def convert(self, string: bytes) -> bytes:
        bare = string.rstrip(b"=")
        if len(string) - len(bare) not in (0, -len(bare) % 4):
            raise ValueError("its padding is not that of base64")
        try:
            alternatives = b"-_" if self.alphabet == "web_safe" else b"+/"
            if self.alphabet == "web_safe" and (b"+" in bare or b"/" in bare):
                raise binascii.Error
            return base64.b64decode(bare + b"=" * (-len(bare) % 4), alternatives, validate=True)
        except binascii.Error:
            raise ValueError(f"it is not base64 of the {self.alphabet} alphabet") from None


class NumberOfText(Step):
    """A step that makes an int64 of each string."""

    @override
    def result(self, feature: Feature) -> Feature:
        if not feature.dtype.is_string:
            raise self.takes(feature, "text or bytes")
        return changed(feature, INT64)


@dataclass(frozen=True, slots=True)
class Lookup(NumberOfText):
    """The position of text in a vocabulary, as `tf.lookup.StaticVocabularyTable`.

    What is not in it goes to one of `oov_buckets` behind it, by its hash; without any it is an error.
    """

    name = "lookup"
    vocabulary: tuple[str, ...]
    oov_buckets: int = 0
    _positions: dict[bytes, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        positions = {word.encode(): index for index, word in enumerate(self.vocabulary)}
        if len(positions) != len(self.vocabulary):
            raise invalid(self.name, "a word is twice in the vocabulary")
        if not 0 <= self.oov_buckets < 1 << 62:
            raise invalid(self.name, "oov_buckets must be 0 or more, and below 2^62")
        object.__setattr__(self, "_positions", positions)

    @override
    def result(self, feature: Feature) -> Feature:
        names = () if self.oov_buckets else self.vocabulary
        return replace(NumberOfText.result(self, feature), meaning=Meaning(class_names=names))

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        strings = strings_of(column)
        tools.lease.charge(8 * len(strings) + strings.nbytes + 64 * len(strings), "The step lookup")
        values = np.array([self._positions.get(word, -1) for word in strings.unpack()], np.int64)
        unknown = values < 0
        if unknown.any():
            if not self.oov_buckets:
                reason = "it is not in the vocabulary"
                raise RowsRefused(ValuesRefused(unknown, reason).by_row(column, num_rows))
            buckets = hash_buckets(strings, self.oov_buckets) + len(self.vocabulary)
            values = np.where(unknown, buckets, values)
        return replace(column, values=values)


@dataclass(frozen=True, slots=True)
class HashBuckets(NumberOfText):
    """`tf.strings.to_hash_bucket_fast`."""

    name = "to_hash_bucket_fast"
    num_buckets: int

    def __post_init__(self) -> None:
        if self.num_buckets < 1:
            raise invalid(self.name, "num_buckets must be at least 1")

    @override
    def apply(self, column: Column, feature: Feature, num_rows: int, tools: Tools) -> Column:
        strings = strings_of(column)
        tools.lease.charge(16 * len(strings), f"The step {self.name}")
        return replace(column, values=hash_buckets(strings, self.num_buckets))


def hash_buckets(strings: Strings, num_buckets: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The bucket of each string: its FarmHash fingerprint modulo `num_buckets`."""
    hashes = np.empty(len(strings), np.uint64)
    with np.errstate(over="ignore"):  # uncompiled, the kernel's arithmetic modulo 2^64 would warn
        kernels.load().fingerprint_strings(strings.data, strings.offsets, hashes)
    return (hashes % np.uint64(num_buckets)).astype(np.int64)
