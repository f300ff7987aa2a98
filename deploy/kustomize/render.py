"""Writes the kustomize base from the chart, so that both say the same: render.py [FOLDER].

Needs helm; SHARDSMITH_TEST_HELM names it, if it is not on the PATH. Run it after a change of the chart.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
CHART: Final = HERE.parent / "helm" / "shardsmith"
#: What an overlay changes stands here as anything that the chart accepts.
VALUES: Final = ("storage.url=s3://set-by-the-overlay", "authentication.tokensSecret=shardsmith-tokens")
#: Helm's own. Kustomize replaces pods when a setting changes by the name of the ConfigMap.
LEFT_OUT: Final = re.compile(
    r"^ *annotations:\n *#.*\n *checksum/config: .*\n"
    r"|^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n|^# Source: .*\n",
    re.MULTILINE,
)
HEAD: Final = "# Made by render.py from the chart; change that, or patch this in an overlay.\n"


def render(folder: Path) -> None:
    """Write each manifest by itself, and the settings as the file that a generator of ConfigMaps reads."""
    settings = [word for value in VALUES for word in ("--set", value)]
    helm = os.environ.get("SHARDSMITH_TEST_HELM", "helm")
    command = [helm, "template", "shardsmith", str(CHART), *settings]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    for manifest in rendered.split("---\n")[1:]:
        [kind] = re.findall(r"^kind: (\w+)$", manifest, re.MULTILINE)
        [name] = re.findall(r"^metadata:\n  name: ([\w-]+)$", manifest, re.MULTILINE)
        if kind == "ConfigMap":
            data = manifest.partition("\ndata:\n")[2].strip().splitlines()
            lines = [re.sub(r'^ *(\w+): "?(.*?)"?$', r"\1=\2", line) for line in data]
            (folder / "settings.env").write_text("\n".join([HEAD.rstrip(), *lines, ""]), "utf-8")
        else:
            file = kind.lower() + name.removeprefix("shardsmith")
            (folder / f"{file}.yaml").write_text(HEAD + LEFT_OUT.sub("", manifest), "utf-8")


if __name__ == "__main__":
    render(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "base")
