"""Pages of other origins in a real browser: they send nothing, show nothing in a frame, and read nothing."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.support.service import Service

pytestmark = pytest.mark.tools

ROWS = '[{"x":1}]'


class Evil(BaseHTTPRequestHandler):
    """Serves an empty page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!DOCTYPE html><title>evil</title><body></body>")

    def log_request(self, *_: object) -> None:
        pass


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of another site: `localhost` is none of `127.0.0.1`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context()
        opened = context.new_page()
        opened.goto(f"http://localhost:{server.server_port}/")
        yield opened
        context.close()
        server.shutdown()


def datasets(service: Service) -> list[str]:
    answer = httpx.get(f"{service.url}/v1/datasets").raise_for_status()
    return [each["dataset"] for each in answer.json()["datasets"]]


#: Submits a form whose body is the rows, as JSON or as a file.
FORM = """([url, encoding, target]) => {
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: url, enctype: encoding, target });
  const field = document.createElement("input");
  field.name = '[{"x":1,"y":"';
  field.value = '"}]';
  form.append(field);
  document.body.append(form);
  form.submit();
}"""


@pytest.mark.parametrize("path", ["/ui/file", "/v1/datasets/stolen/records?from=json&publish=true"])
@pytest.mark.parametrize(
    "encoding", ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]
)
def test_a_form_of_another_origin_is_refused(page: Page, shown: Service, path: str, encoding: str) -> None:
    with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        page.evaluate(FORM, [shown.url + path, encoding, "_self"])
    assert answered.value.status == 403
    assert "stolen" not in datasets(shown)


def test_a_frame_without_an_origin_changes_nothing(page: Page, shown: Service) -> None:
    """Such a page has the origin `null`. It hears nothing of the answer, but that there is one."""
    url = f"{shown.url}/v1/datasets/stolen/records?from=json&publish=true"
    script = (
        f"fetch({json.dumps(url)}, {{ method: 'POST', mode: 'no-cors', body: {json.dumps(ROWS)} }})"
        ".then(() => parent.postMessage(origin, '*'))"
    )
    origin = page.evaluate(
        """script => new Promise((resolve) => {
          addEventListener("message", (event) => resolve(event.data));
          const frame = document.createElement("iframe");
          frame.sandbox = "allow-scripts";
          frame.srcdoc = "<script>" + script + "</scr" + "ipt>";
          document.body.append(frame);
        })""",
        script,
    )
    assert origin == "null"
    assert "stolen" not in datasets(shown)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_script_of_another_origin_changes_and_reads_nothing(
    page: Page, shown: Service, method: str
) -> None:
    before = datasets(shown)
    path = "/v1/datasets/growing" + ("/records" if method == "POST" else "")
    outcomes = page.evaluate(
        """async ([url, method]) => Promise.all([
          fetch(url, { method, mode: "cors", body: '[{"x":1}]' }),
          fetch(url, { mode: "no-cors", method: "POST", body: '[{"x":1}]' }).then((answer) => answer.text()),
          fetch(url).then((answer) => answer.text()),
        ].map((asked) => asked.then((found) => found || "nothing", (error) => error.name)))""",
        [shown.url + path, method],
    )
    assert outcomes == ["TypeError", "nothing", "TypeError"]
    assert datasets(shown) == before
    growing = httpx.get(f"{shown.url}/v1/datasets/growing").json()
    assert growing["waiting"]["num_appends"] == 0


@pytest.mark.parametrize("path", ["/ui", "/ui/file", "/docs", "/ui/datasets/flowers"])
def test_no_page_is_shown_in_a_frame_of_another_origin(page: Page, shown: Service, path: str) -> None:
    with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
        page.evaluate(
            """url => {
              const frame = document.createElement("iframe");
              frame.src = url;
              document.body.append(frame);
            }""",
            shown.url + path,
        )
