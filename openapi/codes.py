"""Every error code, found by walking the source of the service, with the statuses that it goes with."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app import errors
from app.api.problems import STATUS

APP: Final = Path(__file__).parent.parent / "app"
#: Exceptions, by the name that the source calls.
_STATUSES: Final = {
    name: next(STATUS[kind] for kind in value.__mro__ if kind in STATUS)
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.ShardsmithError)
}
#: Functions and classes that take a status in front of the code.
_AFTER_STATUS: Final = ("Refused", "problem", "problem_response")
#: Tables with codes in them, which other code takes its code from.
_TABLES: Final = ("_CODES", "_REASONS")
#: Problems of a stored version, which `validate` reports; no error has them.
_REPORTS: Final = "services/datasets/validate/"


def find_codes() -> dict[str, set[int]]:
    """The codes, each with those of its statuses that the source shows."""
    found: dict[str, set[int]] = defaultdict(set)
    for path in sorted(APP.rglob("*.py")):
        if not path.relative_to(APP).as_posix().startswith(_REPORTS):
            for code, status in _codes_in(ast.parse(path.read_text("utf-8"))):
                found[code].update([status] if status else [])
    return found


def _codes_in(tree: ast.Module) -> Iterator[tuple[str, int | None]]:
    places = _places_of_codes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _name(node.func)
            given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            given += [node.args[place] for place in places.get(name, ()) if place < len(node.args)]
            for value in given:
                for code in _strings(value):
                    if re.fullmatch(r"[a-z][a-z0-9_]*", code):
                        yield code, _status(node, name)
        elif isinstance(node, ast.ClassDef):
            for code in _own_codes(node):
                yield code, _STATUSES.get(node.name) or _status_of_bases(node)
        elif isinstance(node, ast.FunctionDef):
            for code in _default_codes(node):
                yield code, None
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) in _TABLES:
            yield from _codes_of_table(node)
        elif isinstance(node, ast.Assign) and _target(node) == "code":
            yield from ((code, None) for code in _strings(node.value))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            yield from ((code, None) for code in _unpacked_codes(node.targets[0], node.value))


def _places_of_codes(tree: ast.Module) -> dict[str, set[int]]:
    """Functions and classes -> the places of `code` among their arguments; several where names are alike."""
    places = defaultdict(set, {name: {1} for name in _AFTER_STATUS} | {"ItemError": {2}, "Check": {2}})
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            names = names[1:] if names[:1] in (["self"], ["cls"]) else names
            if "code" in names:
                places[node.name].add(names.index("code"))
    return places


def _name(value: ast.expr) -> str:
    """The last part of a dotted name; nothing of any other expression."""
    if isinstance(value, ast.Attribute):
        return value.attr
    return value.id if isinstance(value, ast.Name) else ""


def _strings(value: ast.expr) -> Iterator[str]:
    """The texts that an expression may be: one, or either of two."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.IfExp):
        yield from _strings(value.body)
        yield from _strings(value.orelse)
    elif isinstance(value, ast.Call) and _name(value.func) == "get" and len(value.args) == 2:
        yield from _strings(value.args[1])


def _status(call: ast.Call, name: str) -> int | None:
    first = call.args[0] if call.args else None
    if name in _AFTER_STATUS and isinstance(first, ast.Constant) and isinstance(first.value, int):
        return first.value
    return _STATUSES.get(name)


def _own_codes(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _target(statement) == "code":
            yield from _strings(statement.value) if statement.value else ()


def _status_of_bases(node: ast.ClassDef) -> int | None:
    return next((_STATUSES[name] for name in map(_name, node.bases) if name in _STATUSES), None)


def _default_codes(node: ast.FunctionDef) -> Iterator[str]:
    arguments = [*node.args.posonlyargs, *node.args.args]
    for argument, default in zip(reversed(arguments), reversed(node.args.defaults), strict=False):
        if argument.arg == "code":
            yield from _strings(default)


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    return _name(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _codes_of_table(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[str, int | None]]:
    if isinstance(node.value, ast.Dict):  # status -> code
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            status = key.value if isinstance(key, ast.Constant) and isinstance(key.value, int) else None
            yield from ((code, status) for code in _strings(value))
    elif isinstance(node.value, ast.Tuple):  # (part of a message, code, detail)
        for row in node.value.elts:
            if isinstance(row, ast.Tuple):
                yield from ((code, 400) for code in _strings(row.elts[1]))


def _unpacked_codes(names: ast.Tuple, value: ast.expr) -> Iterator[str]:
    """Of `faults, code = found, "invalid_bool"`."""
    if isinstance(value, ast.Tuple):
        for name, part in zip(names.elts, value.elts, strict=False):
            if _name(name) == "code":
                yield from _strings(part)
