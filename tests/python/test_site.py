"""The documentation site builds without warnings, and its pages load nothing from elsewhere."""
import html.parser
import inspect
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "cli"))
from browser import Browser, find_browser  # noqa: E402

from limits import HANGS

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src"}


class Loads(html.parser.HTMLParser):
    """What a browser fetches for a page, and where its links lead."""

    def __init__(self):
        super().__init__()
        self.fetched, self.links, self.anchors = [], [], set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.add(values.get("id"))
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(values["href"])
        if values.get(LOADED.get(tag, "")):
            self.fetched.append(values[LOADED[tag]])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])


def build(root, folder):
    # No network: whatever asks for one fails.
    nowhere = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    return subprocess.run(
        [str(root / "scripts" / "docs.sh"), str(folder)],
        capture_output=True,
        text=True,
        timeout=HANGS,
        env={**os.environ, **nowhere, "PYTHON": sys.executable},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("link", ["[a](nowhere.md)", "[a](formats.md#nowhere)"])
def test_links_that_lead_nowhere_are_refused(link, tmp_path):
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "ulpscope").symlink_to(ROOT / "python" / "ulpscope")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    page = tmp_path / "docs" / "report.md"
    page.write_text(page.read_text() + f"\n{link}\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0 and "nowhere" in done.stderr, done.stdout + done.stderr


def test_every_public_name_is_in_the_reference(site):
    """Against what Python itself says of the names: signature and docstring."""
    library = pytest.importorskip("ulpscope")

    class Text(html.parser.HTMLParser):
        def __init__(self):
            super().__init__()
            self.words = []

        def handle_data(self, data):
            self.words += data.split()

    text = Text()
    text.feed((site / "api.html").read_text())
    page = " ".join(text.words)
    for name in library.__all__:
        if name.startswith("__"):
            continue
        thing = getattr(library, name)
        assert f"ulpscope.{name}" in page, name
        if not callable(thing) or not inspect.getdoc(thing) or not hasattr(thing, "__module__"):
            continue
        if inspect.isfunction(thing):
            for argument in inspect.signature(thing).parameters:
                assert argument in page, (name, argument)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            first = inspect.getdoc(thing).split(".")[0].replace("`", "").split()
            assert " ".join(first[:8]) in page, (name, first)


def test_pages_load_nothing_from_elsewhere(site):
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    assert len(pages) >= len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text())
        assert loads.fetched
        for each in loads.fetched:
            assert not each.startswith(("http:", "https:", "//")), (page, each)
            assert (page.parent / each.split("?")[0].split("#")[0]).exists(), (page, each)
        for link in loads.links:
            if not link.startswith(("http:", "https:", "#", "mailto:")):
                assert (page.parent / link.split("#")[0]).exists(), (page, link)
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text() and "@import" not in sheet.read_text()


SEARCH = """new Promise((done) => {
  const query = document.querySelector("input[name=query]");
  query.focus();
  query.value = "WORDS";
  query.dispatchEvent(new Event("keyup"));
  const end = Date.now() + 30000;
  const look = () => {
    const found = [...document.querySelectorAll(".md-search-result__item a")].map((link) => link.getAttribute("href"));
    found.length || Date.now() > end ? done(found) : setTimeout(look, 50);
  };
  look();
})"""


@pytest.mark.skipif(find_browser() is None, reason="there is no Chromium")
def test_the_search_works_without_a_server(site, tmp_path):
    with Browser(tmp_path) as browser:
        for page in ("index.html", "howto/migration.html"):
            browser.open(site / page)
            for words, wanted in (
                ("bisect", "cli/precision_bisect.html"),
                ("variance underflow", "causes/underflow.html"),
            ):
                found = browser.evaluate(SEARCH.replace("WORDS", words))
                assert any(wanted in link for link in found), (page, words, found)
                browser.open(site / page)
            assert not browser.messages and all(url.startswith(("file:", "data:")) for url in browser.requests)
