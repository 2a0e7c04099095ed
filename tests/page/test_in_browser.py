"""The page in Chromium: what it shows is what the platform says, on a desk and on a telephone."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import browser
import pytest
from browser import Browser
from events import Stream
from serving import HOSTILE

from uncia.platforms import inquiries

pytestmark = pytest.mark.skipif(browser.find() is None, reason="needs Chromium")

HAS_BILLS: Final = "document.querySelectorAll('#meter tbody .parts').length > 5"
# A page that tries to read what its platform knows, by asking and by showing it in a frame.
CURIOUS: Final = """
PAGE = '''<script>
const asked = fetch("/uncia/v1/health").then((it) => it.text());
const shown = new Promise((done) => addEventListener("load", done)).then(
  () => document.querySelector("iframe").contentDocument.title);
Promise.allSettled([asked, shown]).then((all) => {
  document.title = all.map((it) => it.value ? "read" : "refused").join();
});
</script><iframe src="/uncia/"></iframe>'''

def handler(event, context):
    return {"statusCode": 200, "headers": {"content-type": "text/html"}, "body": PAGE}
"""
TELEPHONE: Final = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}

# What is inside an area that scrolls may be wider than the page.
WIDE: Final = r"""(() => {
  const width = document.documentElement.clientWidth;
  const free = [...document.querySelectorAll("body *:not(svg *)")].filter((it) => {
    const box = it.getBoundingClientRect();
    return !it.parentElement.closest(".scroll") && box.width > 0 && box.right > width + 1;
  });
  return free.map((it) => `${it.tagName} ${it.id} ${it.className}`);
})()"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.started(tmp_path_factory.mktemp("browser")) as result:
        yield result


@pytest.fixture
def page(chromium: Browser, serving: Any) -> Browser:
    chromium.screen, chromium.is_dark = None, False
    chromium.requests.clear()
    chromium.messages.clear()
    chromium.visit(f"http://{serving.address}/uncia/", HAS_BILLS)
    return chromium


def text(page: Browser, selector: str) -> str:
    return str(page.run(f"document.querySelector({selector!r}).textContent"))


def test_the_page_shows_what_runs(page: Browser, serving: Any) -> None:
    assert text(page, "#status") == "Live"
    names = page.run(
        "[...document.querySelectorAll('#functions tbody th')].map((it) => it.title).sort()"
    )
    assert names == ["fails", "works"]
    rows = "[...document.querySelectorAll('#rows tbody tr')].map((it) => Number(it.dataset.number))"
    newest = page.run(rows)[0]
    serving.invoke("works")
    page.wait(f"({rows})[0] === {newest + 1}")
    assert page.run(rows) == sorted(page.run(rows), reverse=True)
    page.wait("document.querySelector('#functions').textContent.includes('frozen')")
    assert page.run("document.querySelectorAll('[data-chart] svg path.a').length") == 3
    # Nothing comes from elsewhere, and nothing was refused.
    assert all(url.startswith(f"http://{serving.address}/uncia/") for url in page.requests)
    assert page.messages == []


def test_names_and_errors_are_text(page: Browser) -> None:
    assert page.run("document.title") == "Uncia: what runs"
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    failed = text(page, "#rows tr.failed .outcome")
    assert failed == f"function_error: ValueError: {HOSTILE}"


def test_the_meter_shows_the_bills_as_they_were_computed(page: Browser, serving: Any) -> None:
    with Stream(serving.address) as stream:
        rows, _, _ = inquiries.fetch_page(serving.address, "invocations", 0, print)
        bills = stream.wait("bills", lambda bills: bills["rows"] == rows.num_rows)
    note = "document.querySelector('#meter-note').textContent"
    page.wait(f"{note}.startsWith('What the {bills['rows']} invocations')")
    shown = page.run(
        "Object.fromEntries([...document.querySelectorAll('#meter tbody tr')].map((it) =>"
        " [it.dataset.tariff, [...it.cells].map((cell) => cell.title || cell.textContent)]))"
    )
    assert set(shown) == {tariff["id"] for tariff in bills["tariffs"]}
    for tariff, line in zip(bills["tariffs"], bills["total"], strict=True):
        cells = shown[tariff["id"]]
        assert cells[1] == f"${line['exact']}"
        assert cells[3:6] == [part["amount"] for part in line["parts"]]
    # Of one function alone, its own bill.
    page.run(
        "(() => { const chooser = document.querySelector('#meter-function');"
        " chooser.value = 'fails'; chooser.dispatchEvent(new Event('change')); })()"
    )
    (fails,) = [it for it in bills["functions"] if it["name"] == "fails"]
    first = bills["tariffs"][0]["id"]
    cell = page.run(f"document.querySelector('[data-tariff={first}]').cells[1].title")
    assert cell == f"${fails['lines'][0]['exact']}"


def test_on_a_telephone_nothing_is_wider_than_the_screen(chromium: Browser, serving: Any) -> None:
    chromium.screen = TELEPHONE
    chromium.visit(f"http://{serving.address}/uncia/", HAS_BILLS)
    assert chromium.run("document.documentElement.clientWidth") == TELEPHONE["width"]
    assert chromium.run(WIDE) == []


def test_in_the_dark_the_ground_is_dark(page: Browser, serving: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.run(ground) == "rgb(255, 255, 255)"
    page.is_dark = True
    page.visit(f"http://{serving.address}/uncia/", HAS_BILLS)
    assert page.run(ground) == "rgb(20, 25, 30)"


def test_the_page_says_when_the_platform_is_gone(
    chromium: Browser, start_serving: Callable[..., Any]
) -> None:
    chromium.screen, chromium.is_dark = None, False
    served = start_serving()
    status = "document.querySelector('#status')"
    chromium.visit(f"http://{served.address}/uncia/", f"{status}?.className === 'live'")
    chromium.wait("document.querySelector('#functions-note').textContent.includes('no functions')")
    served.stop()
    chromium.wait(f"{status}.className === 'lost'")


def test_the_page_of_a_function_reads_nothing_of_the_platforms(
    chromium: Browser, serving: Any
) -> None:
    chromium.screen, chromium.is_dark = None, False
    serving.create("curious", CURIOUS)
    made = serving.client.create_function_url_config(FunctionName="curious", AuthType="NONE")
    chromium.visit(made["FunctionUrl"], "document.title.includes(',')")
    assert chromium.run("document.title") == "refused,refused"
    assert chromium.run("self.origin") == "null"
