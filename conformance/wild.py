"""Send files that neither this project nor its tests wrote to a real service, and print what it reads.

`python -m conformance.wild [FOLDER]`: wild.txt names the files, with their checksums. They come from
FOLDER/owner/name, a clone or a folder of raw files, or from GitHub where no FOLDER is given. Writes wild.md.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.service import start

HERE: Final = Path(__file__).parent
LIST: Final = HERE / "wild.txt"
RESULTS: Final = HERE / "wild.md"
RAW: Final = "https://raw.githubusercontent.com"
#: Ending -> form.
FORMS: Final = {
    "parquet": "parquet",
    "arrow": "arrow",
    "arrow_file": "arrow",
    "stream": "arrow",
    "feather": "arrow",
    "csv": "csv",
    "tsv": "text/tab-separated-values",
    "npz": "npz",
}
_HEAD: Final = """\
# Files of the wild

Written by `python -m conformance.wild`: files of public repositories, sent to
`POST /v1/records/describe?infer=all` (NPZ whose arrays are no columns to `/v1/tensors/describe`, and
SequenceExamples again with `?message=sequence_example`).

"""


@dataclass(frozen=True)
class WildFile:
    """A line of the list."""

    repository: str
    commit: str
    path: str
    sha256: str

    @property
    def form(self) -> str:
        # TFRecord has no ending that all use.
        return FORMS.get(self.path.rpartition(".")[2], "tfrecord")

    def fetch(self, folder: Path | None) -> bytes:
        """The file, checked against its checksum."""
        if folder is None:
            url = f"{RAW}/{self.repository}/{self.commit}/{urllib.parse.quote(self.path)}"
            data = httpx.get(url, timeout=60).raise_for_status().content
        elif (raw := folder / self.repository / self.path).exists():
            data = raw.read_bytes()
        else:
            command = ["git", "-C", str(folder / self.repository), "show", f"{self.commit}:{self.path}"]
            data = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        if (found := hashlib.sha256(data).hexdigest()) != self.sha256:
            raise SystemExit(f"{self.repository} {self.path} has the checksum {found}.")
        return data


def listed() -> Iterator[WildFile]:
    for line in LIST.read_text(encoding="utf-8").splitlines():
        repository, commit, path, sha256 = line.split(" ")
        yield WildFile(repository, commit, path, sha256)


def describe(client: httpx.Client, file: WildFile, data: bytes) -> tuple[bool, str]:
    """Whether it was read, and what was read or why not."""
    params = {"from": file.form}
    answer = client.post("/v1/records/describe", params={**params, "infer": "all"}, content=data)
    if answer.status_code == 422 and answer.json()["code"] == "sequence_example":
        message = {"infer": "all", "message": "sequence_example"}
        answer = client.post("/v1/records/describe", params={**params, **message}, content=data)
    if answer.status_code == 200:
        found: dict[str, Any] = answer.json()
        return True, f"{found['num_records']:,} rows of {len(found['features'])} features"
    if file.form == "npz":
        tensors = client.post("/v1/tensors/describe", params=params, content=data)
        if tensors.status_code == 200:
            return True, f"{len(tensors.json())} tensors"
    problem = answer.json()
    return False, f"{answer.status_code} `{problem['code']}`: {problem['detail']}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, help="of clones or raw files, by owner/name")
    arguments = parser.parse_args()
    lines = ["| file | bytes | read as | |", "|---|---|---|---|"]
    num_read = num_files = 0
    with tempfile.TemporaryDirectory() as scratch:
        service = start(Path(scratch))
        try:
            service.wait_until_ready()
            with httpx.Client(base_url=service.url, timeout=120) as client:
                for file in listed():
                    data = file.fetch(arguments.folder)
                    is_read, what = describe(client, file, data)
                    num_read, num_files = num_read + is_read, num_files + 1
                    form = file.form if is_read else f"**not** {file.form}"
                    what = what.replace("|", r"\|")[:300]
                    lines.append(f"| {file.repository} `{file.path}` | {len(data):,} | {form} | {what} |")
                    print(lines[-1], flush=True)
        finally:
            service.process.terminate()
            service.process.wait()
    print(f"{num_read} of {num_files} are read")
    summary = f"{num_read} of {num_files} are read.\n\n"
    RESULTS.write_text(_HEAD + summary + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
