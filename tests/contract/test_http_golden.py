"""The golden files over HTTP: the options in the index are parameters and headers, and its statuses hold."""

import json
from typing import Any, Final

import httpx
import pytest

from tests.golden.entries import FILES, INDEX
from tests.support.tensor_formats import LENGTH

Entry = dict[str, Any]

DOCUMENT: Final = json.loads(INDEX.read_text("utf-8"))
#: What is said to a writer alone; of Arrow's formats the media type says it.
OF_WRITERS: Final = frozenset({"layout", "arrow"})


def send(client: httpx.Client, entry: Entry) -> httpx.Response:
    """The answer to the file as JSON."""
    params, headers = {"from": entry["form"], "to": "json"}, {}
    for name, value in entry.get("options", {}).items():
        if name == "json_bytes":
            headers[LENGTH] = str(value)
        elif name == "boundary":
            del params["from"]
            headers["Content-Type"] = f"multipart/form-data; boundary={value}"
        elif name not in OF_WRITERS:
            params[name] = ",".join(map(str, value)) if isinstance(value, list) else value
    if "schema" in entry:
        features = json.loads((FILES / entry["schema"]).read_bytes())["features"]
        names = entry.get("names", features)
        params["schema"] = json.dumps({"features": {name: features[name] for name in names}})
    noun = "records" if entry["holds"] == "rows" else "tensors"
    content = (FILES / entry["path"]).read_bytes()
    return client.post(f"/v1/{noun}/serialize", params=params, headers=headers, content=content)


#: The last of each format: tests/unit/codecs/test_golden.py reads all of them, and compares their values.
OF_EACH_FORM: Final = {
    (entry["holds"], entry["form"]): entry for entry in DOCUMENT["good"] if entry["holds"] != "schema"
}


@pytest.mark.parametrize("entry", OF_EACH_FORM.values(), ids=lambda entry: entry["path"])
def test_a_good_file_of_each_form_is_converted(client: httpx.Client, entry: Entry) -> None:
    answer = send(client, entry)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("entry", DOCUMENT["bad"], ids=lambda entry: entry["path"])
def test_bad_files_are_answered_as_the_index_says(client: httpx.Client, entry: Entry) -> None:
    answer = send(client, entry)
    assert (answer.status_code, answer.json()["code"]) == (entry["status"], entry["code"])
