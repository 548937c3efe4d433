"""docs/cli describes every option of every tool, in the program's own words.

`python tests/cli/test_docs.py --write` renews its pages; cli_pages.py says how they are made.
"""

import os
import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cli_pages import FOLDER, ROOT, Pages, help_text, tools_of

HAND_WRITTEN = {"index.md", "shared.md", "polygraphy.md"}
LINK = re.compile(r"\]\(([a-z_]+\.md)(#[\w-]*)?\)")


def page_of(tool):
    return tool.replace(" ", "_").replace("-", "_") + ".md"


def one_line(text):
    return " ".join(text.split())


def entries_of(text):
    """The options in a help text, or in the code blocks of a page, each with its description, in one line."""
    entries, current = [], None
    for line in text.splitlines():
        if re.match(r"  (-{1,2}[a-zA-Z]|[A-Z]+( [A-Z]+)*( {2}|$))", line):
            current = [line]
            entries.append(current)
        elif current is not None and line.startswith(" " * 6):
            current.append(line)
        else:
            current = None
    return [one_line(" ".join(lines)) for lines in entries]


def options_on(page):
    """What a page says of options: the code blocks after that with the usage."""
    text = (FOLDER / page).read_text()
    blocks = re.findall(r"^```text\n(.*?)^```$", text, re.S | re.M)
    return [entry for block in blocks if not block.startswith("usage: ") for entry in entries_of(block)]


def anchors_on(page):
    headings = re.findall(r"^#+ (.*)$", (FOLDER / page).read_text(), re.M)
    return {"#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def long_names(entry):
    names = re.match(r"(?:-[\w-]+, )*-[\w-]+", entry)
    return re.findall(r"--[\w-]+", names[0]) if names else []


@pytest.fixture(scope="module")
def helps(binary):
    """`--help-all` of every tool."""
    return {tool: help_text(binary, f"{tool} --help-all") for tool in tools_of(binary)}


def test_the_pages_are_current(binary):
    pages = Pages(binary)
    for page in sorted(FOLDER.glob("*.md")):
        assert page.read_text() == pages.renewed(page.read_text()), f"{page}: renew with `test_docs.py --write`"


def test_every_tool_has_a_page(helps):
    assert {page.name for page in FOLDER.glob("*.md")} == HAND_WRITTEN | {page_of(tool) for tool in helps}
    navigation = (ROOT / "mkdocs.yml").read_text()
    index = (FOLDER / "index.md").read_text()
    for tool in helps:
        assert f"ulpscope {tool}: cli/{page_of(tool)}\n" in navigation
        assert f"[`{tool}`]({page_of(tool)})" in index
        text = (FOLDER / page_of(tool)).read_text()
        assert text.startswith(f"# ulpscope {tool}\n")
        head = helps[tool].split("\noptions:")[0]
        assert one_line(re.search(r"```text\n(usage: .*?)```", text, re.S)[1]) == one_line(head)


def test_every_option_is_on_one_page(helps):
    """On that of its tool, or, in the same words for several tools, on the shared one."""
    shared = options_on("shared.md")
    assert len(set(shared)) == len(shared)
    used = set()
    for tool, text in helps.items():
        own, entries = options_on(page_of(tool)), entries_of(text.split("\noptions:\n")[1])
        assert len(entries) > 5
        assert set(own) <= set(entries), tool
        assert len(set(own)) == len(own)
        for entry in entries:
            assert (entry in own) != (entry in shared), (tool, entry)
        used |= set(entries) - set(own)
    assert used == set(shared)
    for entry in shared:
        assert sum(entry in entries_of(text) for text in helps.values()) > 1, entry


def test_a_tools_page_names_the_groups_that_it_shares(helps):
    shared_page = (FOLDER / "shared.md").read_text()
    places = {}
    for section in re.split(r"^(?=## )", shared_page, flags=re.M)[1:]:
        title = section[3:].split("\n", 1)[0]
        for block in re.findall(r"^```text\n(.*?)^```$", section, re.S | re.M):
            places.update(dict.fromkeys(entries_of(block), (title, section)))
    for tool, text in helps.items():
        page = (FOLDER / page_of(tool)).read_text()
        rows = dict(re.findall(r"^\| \[(.*?)\]\(shared\.md#[\w-]+\) \| (.*) \|$", page, re.M))
        entries = [entry for entry in entries_of(text) if entry in places]
        assert set(rows) == {places[entry][0] for entry in entries}, tool
        for entry in entries:
            title, section = places[entry]
            idle = re.search(r"\[(accepted, has no effect|refused):", entry)
            names = long_names(entry) or [entry.split()[0]]
            assert (f"`{names[0]}`" in rows[title]) == (not idle), (tool, entry)
            assert f"]({page_of(tool)})" in section or "In all tools." in section, (tool, title)


def test_the_index_names_every_option(helps):
    rows = re.findall(r"^\| (`.*`) \| (.*\)(?: \(.*\))?) \|$", (FOLDER / "index.md").read_text(), re.M)
    places = {name: where for names, where in rows for name in re.findall(r"`([^`]*)`", names)}
    for tool, text in helps.items():
        own = options_on(page_of(tool))
        for entry in entries_of(text.split("\noptions:\n")[1]):
            for name in long_names(entry) or [entry.split()[0]]:
                page = page_of(tool) if entry in own else "shared.md"
                assert f"({page}#" in places[name], (tool, name)


def test_links_between_the_pages_lead_somewhere():
    for page in FOLDER.glob("*.md"):
        for name, anchor in LINK.findall(page.read_text()):
            assert (FOLDER / name).is_file(), (page, name)
            assert not anchor or anchor in anchors_on(name), (page, name, anchor)


def test_options_without_effect_are_shown_when_asked_for(binary, helps):
    """By --help-all, and on the pages below a line that says so."""
    for tool, whole in helps.items():
        short = help_text(binary, f"{tool} --help")
        assert "has no effect: " not in short
        hidden = set(entries_of(whole)) - set(entries_of(short))
        assert ("--help-all" in short) == (short != whole) == bool(hidden)
        for entry in hidden:
            place = FOLDER / (page_of(tool) if entry in options_on(page_of(tool)) else "shared.md")
            before = one_line(place.read_text()).split(entry)[0].rsplit("```text", 1)[0].rstrip()
            assert before.endswith("Accepted for the sake of scripts, without effect:"), (tool, entry)


if __name__ == "__main__" and "--write" in sys.argv:
    from cli_support import newest_binary

    pages = Pages(os.environ.get("ULPSCOPE_BIN") or newest_binary("ulpscope"))
    for page in FOLDER.glob("*.md"):
        page.write_text(pages.renewed(page.read_text()))
