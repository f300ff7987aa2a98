"""The code stays within [tool.shardsmith.budgets] of pyproject.toml, which bin/lint measures, too."""

from pathlib import Path

from bin.size import ROOT, budgets, exceeded, measure


def test_each_folder_is_within_its_budget() -> None:
    assert exceeded() == []


def test_each_folder_of_the_package_has_a_budget() -> None:
    folders = {f"app/{file.parent.name}" for file in (ROOT / "app").glob("*/__init__.py")}
    assert {"app/*.py", *folders} == {folder for folder in budgets() if folder.startswith("app")}


def test_folder_above_its_budget_is_reported(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.shardsmith.budgets]\napp = 4\n"bin" = 3\n', "utf-8")
    for folder in ("app", "bin"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text("x = 1\n", "utf-8")  # a module, assignment, name, constant
    # The name has a context, ast.Store.
    assert measure([tmp_path / "app" / "one.py"]).nodes == 5
    assert exceeded(tmp_path) == [
        "app has 5 AST nodes; its budget is 4.",
        "bin has 5 AST nodes; its budget is 3.",
    ]


def test_docstrings_and_comments_do_not_count(tmp_path: Path) -> None:
    bare, described = tmp_path / "bare.py", tmp_path / "described.py"
    bare.write_text("def double(x):\n    return 2 * x\n", "utf-8")
    described.write_text(
        '"""Numbers."""\n\n\ndef double(x):\n    """Twice."""\n    # So.\n    return 2 * x\n', "utf-8"
    )
    assert measure([bare]).nodes == measure([described]).nodes
    assert measure([described]).p90 == 4
