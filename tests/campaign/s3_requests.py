"""What a request to an S3 store is about, in one line that the rules of a fault match against."""

from urllib.parse import parse_qs, unquote, urlsplit

from tests.campaign.http1 import Message

__all__ = ["operation_of", "summary"]

_BY_QUERY = {
    ("POST", "uploads"): "initiate",
    ("PUT", "uploadId"): "part",
    ("POST", "uploadId"): "complete",
    ("DELETE", "uploadId"): "abort",
    ("GET", "uploads"): "uploads",
    ("POST", "delete"): "delete",
    ("GET", "list-type"): "list",
}
_BY_METHOD = {"GET": "get", "HEAD": "head", "PUT": "put", "DELETE": "delete", "POST": "post"}


def operation_of(request: Message) -> str:
    """get, head, list, put, create (only where the key is free), copy, delete, initiate, part,
    complete, abort, uploads."""
    method, target, _ = request.start
    query = parse_qs(urlsplit(target).query, keep_blank_values=True)
    for (of, name), operation in _BY_QUERY.items():
        if method == of and name in query:
            return operation
    if method == "PUT" and "x-amz-copy-source" in request.headers:
        return "copy"
    if method == "PUT" and "if-none-match" in request.headers:
        return "create"
    return _BY_METHOD.get(method, method.lower())


def summary(request: Message) -> str:
    """`<operation> <bucket>/<key>`, with the prefix of a listing and the range of a get behind it."""
    parts = urlsplit(request.start[1])
    words = [operation_of(request), unquote(parts.path).lstrip("/")]
    words += parse_qs(parts.query).get("prefix", [])
    if "range" in request.headers:
        words.append(request.headers["range"])
    return " ".join(words)
