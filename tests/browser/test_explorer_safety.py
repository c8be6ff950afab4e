"""Strangers in a real browser: a wrong token, another origin, and names that would like to be code."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import fedwise as fw
from browser.browser_kit import federation
from fedwise.explore import Explorer
from fedwise.explore.redirect import Redirect
from fedwise.pool.pool import Pool

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ATTEMPTS = """
async (address) => {
  const tried = {};
  for (const path of ["", "api/pool", "vega.js", "download/selection.json"]) {
    for (const mode of ["cors", "no-cors"]) {
      try {
        const answer = await fetch(address + path, { mode, credentials: "include" });
        tried[mode + " " + path] = (await answer.text()).length;
      } catch (error) {
        tried[mode + " " + path] = "refused";
      }
    }
  }
  try {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(address + "api/answer", { method: "POST", body: "{}", headers });
    tried.post = (await answer.text()).length;
  } catch (error) {
    tried.post = "refused";
  }
  tried.script = await new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = address + "static/words.js";
    script.type = "module";
    script.onload = () => resolve("loaded");
    script.onerror = () => resolve("refused");
    document.head.append(script);
  });
  const frame = document.createElement("iframe");
  frame.src = address;
  document.body.append(frame);
  await new Promise((resolve) => { frame.onload = resolve; setTimeout(resolve, 1500); });
  try {
    tried.frame = frame.contentDocument?.body?.innerText ?? "refused";
  } catch (error) {
    tried.frame = "refused";
  }
  return tried;
}
"""


@pytest.fixture
def stranger() -> Iterator[str]:
    """Another site on this machine."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><body>elsewhere</body>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


def test_wrong_token_is_refused(tab: Any, explorer: Explorer) -> None:
    base = explorer.url.removesuffix(explorer.token + "/")
    for wrong in ("", "guess/", explorer.token[:-1] + "/", "guess/api/pool"):
        answer = tab.page.goto(base + wrong)
        assert answer.status == 403
        assert "Refused" in tab.page.inner_text("body")
    tab.complaints.clear()  # the browser notes each refusal


def test_the_redirect_file_leads_to_the_page(tab: Any, explorer: Explorer) -> None:
    redirect = Redirect(explorer.url)
    try:
        tab.page.goto(redirect.uri)
        tab.page.wait_for_url(explorer.url)
        tab.page.wait_for_selector("#federation[data-answered]")
        tab.page.reload()
        tab.page.wait_for_selector("#federation[data-answered]")
    finally:
        redirect.remove()


def test_another_origin_cannot_read(tab: Any, explorer: Explorer, stranger: str) -> None:
    # Worst case: the stranger even knows the token.
    tab.page.goto(stranger)
    tried = tab.page.evaluate(ATTEMPTS, explorer.url)
    readable = {key: value for key, value in tried.items() if value not in ("refused", 0, "")}
    assert readable == {}
    tab.complaints.clear()  # the browser notes each refusal


def test_names_stay_names(tab: Any, fifty: fw.Pool) -> None:
    names = [
        "<img src=x onerror=window.hurt=1>",
        "<script>window.hurt=1",
        'O\'Brien & "Sons", Ltd',
        "${hurt}",
        "a|b#c%41",
    ]
    pool = Pool(names, fifty.plan, fifty.matrix[:5], simulated=True)
    with Explorer(pool) as explorer:
        page = tab.open(explorer.url)
        assert federation(page) == names
        page.wait_for_selector("#terms svg")
        for name in names:
            page.locator("#clients tbody button.client", has_text=name).click()
        page.wait_for_function("document.querySelectorAll('#forced .chip').length === 5")
        page.reload()
        page.wait_for_selector("#federation[data-answered]")
        page.wait_for_function("document.querySelectorAll('#forced .chip').length === 5")
        assert page.locator("#forced .chip > span").all_inner_texts() == names
        assert page.evaluate("window.hurt") is None
        assert page.locator("img, main script").count() == 0
        assert page.locator("#map-panel").is_hidden()
        page.goto("about:blank")  # the page must not miss the server it is about to lose
