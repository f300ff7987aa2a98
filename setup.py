"""What pyproject.toml cannot say: packages in app/ are installed as `shardsmith`; the links of the README."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).parent
#: `[text](address)` of Markdown, or `![text](address)`, with an address within the repository.
RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)")


def readme() -> str:
    """README.md with links that work outside the repository, such as on the page of a package index.

    They lead to this version's tag at `Source` of `[project.urls]`. Without that, the text of a link is left.
    """
    text = (ROOT / "README.md").read_text("utf-8")
    [version] = re.findall(r'^__version__ = "(.*)"', (ROOT / "app" / "__init__.py").read_text("utf-8"), re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    source = project.get("urls", {}).get("Source")
    if source is None:
        return RELATIVE.sub(lambda link: "" if link[1] else link[2], text)
    at = {"!": f"{source}/raw/v{version}/", "": f"{source}/blob/v{version}/"}
    return RELATIVE.sub(lambda link: f"{link[1]}[{link[2]}]({at[link[1]]}{link[3]})", text)


folders = find_namespace_packages("app", exclude=["*__pycache__*"])
setup(
    packages=["shardsmith", *(f"shardsmith.{name}" for name in folders)],
    long_description=readme(),
    long_description_content_type="text/markdown",
)
