"""Makes the pages of docs/cli from the help texts of the program.

A page holds prose, and blocks between `<!-- options: NAME -->` and `<!-- end -->`, which are made here:

- NAME is a tool: its usage and description, the options that it alone has, and links to those that it shares;
- NAME is `group: TITLE`, on shared.md: the options that several tools have in their group of that title;
- `tools` and `index`, on index.md: the table of tools, and that of all options.

An option with the same text in the same group of two tools or more is on shared.md, once. All others are on the pages
of their tools. The words are those of the program; lines are broken for the width of a page.
"""

import dataclasses
import pathlib
import re
import subprocess
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "cli"
MARKED = re.compile(r"(<!-- options: ([^\n]*) -->\n)(.*?)(<!-- end -->\n)", re.S)
# Where an option is shared under several titles, the group that a reader looks in.
HOMES = {"--python-time-limit": "Scripts"}
WIDTH = 78  # Columns of a code block that the site shows without scrolling.
UNBROKEN: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
NO_EFFECT = "Accepted for the sake of scripts, without effect:"


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of options of one tool or several: "TITLE:" and "Options related to ABOUT" in the help text."""

    title: str
    about: str

    @property
    def anchor(self) -> str:
        """Of its heading, as GitHub and MkDocs make it."""
        return re.sub(r"[^a-z0-9 _-]", "", self.title.lower()).replace(" ", "-")

    @property
    def intro(self) -> str:
        """What the help text says below its title."""
        return f"Options related to {self.about.rstrip('.')}." if self.about else "Options of the program itself."


@dataclasses.dataclass(frozen=True)
class Entry:
    """One option, or positional argument, in the words of the program."""

    head: str
    about: str

    @property
    def text(self) -> str:
        """For a page."""
        lines = textwrap.wrap(self.about, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6, **UNBROKEN)
        return "\n".join([f"  {self.head}", *lines])

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names: `-o`, `--output`. The name of a positional argument stands for itself."""
        if not self.head.startswith("-"):
            return (self.head,)
        return tuple(re.findall(r"(?:^|, )(-[-\w]+)", self.head))

    @property
    def name(self) -> str:
        """The first long name."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def note(self) -> str:
        """What becomes of it: "no effect" (only `--help-all` shows it), "refused" (an error), or nothing to say."""
        if "[accepted, has no effect: " in self.about:
            return "no effect"
        return "refused" if "[refused: " in self.about else ""


@dataclasses.dataclass
class Tool:
    """What `ulpscope NAME --help-all` prints."""

    name: str
    head: str
    groups: dict[Group, list[Entry]]

    @property
    def page(self) -> str:
        """The file in docs/cli."""
        return re.sub(r"[ -]", "_", self.name) + ".md"

    @property
    def link(self) -> str:
        """For the other pages of docs/cli."""
        return f"[`{self.name}`]({self.page})"


def help_text(binary: object, words: str) -> str:
    """What the program prints."""
    return subprocess.run([str(binary), *words.split()], text=True, capture_output=True, check=True).stdout


def tools_of(binary: object) -> dict[str, str]:
    """Names and descriptions in `ulpscope --help`."""
    listed = help_text(binary, "--help").split("Tools:\n")[1].split("\n\n")[0]
    return dict(re.findall(r"^  ([a-z-]+(?: [a-z-]+)?)  +(\S.*)$", listed, re.M))


def parsed(name: str, text: str) -> Tool:
    """The groups and options in a help text."""
    head, body = text.split("\noptions:\n", 1)
    groups: dict[Group, list[Entry]] = {}
    for part in re.split(r"\n\n(?=\S)", "options:\n" + body.rstrip("\n")):
        title, rest = part.split("\n", 1)
        about = re.match(r"  Options related to ([^\n]*)\n\n", rest)
        texts = re.split(r"\n(?=  \S)", rest[about.end() :] if about else rest)
        heads = [re.split(r"\s{2,}|\n", entry.strip(), maxsplit=1) for entry in texts]
        entries = [Entry(words[0], " ".join(" ".join(words[1:]).split())) for words in heads]
        groups[Group(title.removesuffix(":"), about[1] if about else "")] = entries
    return Tool(name, head.rstrip("\n"), groups)


def broken(text: str) -> str:
    """Paragraphs in lines of WIDTH columns; those that are indented stay."""
    paragraphs = text.split("\n\n")
    kept = [p if p.startswith(" ") else textwrap.fill(" ".join(p.split()), WIDTH, **UNBROKEN) for p in paragraphs]
    return "\n\n".join(kept)


def block(entries: Iterable[Entry]) -> str:
    """A code block with these options."""
    return "```text\n" + "\n".join(entry.text for entry in entries) + "\n```\n"


def blocks(entries: list[Entry]) -> str:
    """Two code blocks: options with an effect, and those without."""
    idle = [entry for entry in entries if entry.note == "no effect"]
    working = [entry for entry in entries if entry not in idle]
    text = block(working) if working else ""
    if idle:
        text += ("\n" if text else "") + f"{NO_EFFECT}\n\n{block(idle)}"
    return text


def names_text(entries: list[Entry]) -> str:
    """The first names of the options that do something, for a line of prose; without any, what becomes of them."""
    names = ", ".join(f"`{entry.name}`" for entry in entries if not entry.note)
    return names or " or ".join(sorted({entry.note for entry in entries}))


def prose(text: str) -> str:
    """A paragraph in lines of 120 columns."""
    return textwrap.fill(text, 120, **UNBROKEN) + "\n"


class Pages:
    """What belongs on which page."""

    def __init__(self, binary: object) -> None:
        self.about = tools_of(binary)
        self.tools = [parsed(name, help_text(binary, f"{name} --help-all")) for name in self.about]
        found: dict[Entry, dict[Group, list[Tool]]] = defaultdict(lambda: defaultdict(list))
        for tool in self.tools:
            for group, entries in tool.groups.items():
                for entry in entries:
                    found[entry][group].append(tool)
        self.found = found
        # Each shared option's group on shared.md.
        self.home: dict[Entry, Group] = {}
        for entry, groups in found.items():
            several = [group for group, tools in groups.items() if len(tools) > 1]
            wanted = [group for group in several if group.title == HOMES.get(entry.name)]
            if several:
                self.home[entry] = max(wanted or several, key=lambda group: len(groups[group]))
        self.shared: dict[Group, list[Entry]] = defaultdict(list)
        for entry, group in self.home.items():
            self.shared[group].append(entry)
        titles = [group.title for group in self.shared]
        assert len(set(titles)) == len(titles), "two groups of one title on shared.md"

    def group(self, title: str) -> str:
        """A group on shared.md."""
        group = next((g for g in self.shared if g.title == title), None)
        assert group is not None, f"shared.md: no tools share a group '{title}'"
        entries = self.shared[group]
        everywhere = [tool for tool in self.tools if any(tool in self.found[e][group] for e in entries)]
        text = f"{group.intro} In {self._tools(everywhere)}."
        partly: dict[str, set[str]] = defaultdict(set)
        for entry in entries:
            for other, tools in self.found[entry].items():
                for tool in tools:
                    if tool not in everywhere:
                        partly[tool.link].add(other.title)
        if partly:
            places = [f"{tool} (*{', '.join(sorted(titles))}*)" for tool, titles in partly.items()]
            text += f" Some of them are in other groups too: {', '.join(places)}."
        text = prose(text)
        by_tools: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
        for entry in entries:
            by_tools[tuple(tool.name for tool in self.found[entry][group])].append(entry)
        for names, part in sorted(by_tools.items(), key=lambda item: -len(item[0])):
            if len(names) < len(everywhere):
                having = [tool for tool in everywhere if tool.name in names]
                lacking = [tool for tool in everywhere if tool.name not in names]
                shorter = (
                    f"Not in {self._tools(lacking)}" if len(lacking) < len(having) else f"Only in {self._tools(having)}"
                )
                text += "\n" + prose(f"{shorter}:")
            text += "\n" + blocks(part)
        return text

    def tool(self, name: str) -> str:
        """The options of a tool, on its page."""
        tool = next(tool for tool in self.tools if tool.name == name)
        text = f"```text\n{broken(tool.head)}\n```\n"
        rows: dict[Group, list[Entry]] = defaultdict(list)
        for group, entries in tool.groups.items():
            own = [entry for entry in entries if entry not in self.home]
            elsewhere = [e for e in entries if not e.note and e in self.home and self.home[e] != group]
            for entry in entries:
                if entry in self.home:
                    rows[self.home[entry]].append(entry)
            if not own:
                continue
            text += f"\n## {group.title}\n\n{prose(group.intro)}\n{blocks(own)}"
            if elsewhere:
                text += "\n" + prose(f"Shared options of this group: {names_text(elsewhere)}.")
        text += "\n## Shared options\n\n| group | options |\n|---|---|\n"
        for group, entries in rows.items():
            text += f"| [{group.title}](shared.md#{group.anchor}) | {names_text(entries)} |\n"
        return text

    def index(self) -> str:
        """The table of all options."""
        rows: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
        for entry, groups in self.found.items():
            names, places = rows[entry.name]
            names += [name for name in entry.names if name not in names]
            if entry in self.home:
                links = [f"[{self.home[entry].title}](shared.md#{self.home[entry].anchor})"]
            else:
                links = [f"[`{t.name}`]({t.page}#{group.anchor})" for group, tools in groups.items() for t in tools]
            note = f" ({entry.note})" if entry.note else ""
            places += [link + note for link in links if link + note not in places]
        text = "| option | where |\n|---|---|\n"
        for _, (names, places) in sorted(rows.items(), key=lambda row: (row[0].lstrip("-").lower(), row[0])):
            text += f"| {', '.join(f'`{name}`' for name in names)} | {', '.join(places)} |\n"
        return text

    def table(self) -> str:
        """The table of tools."""
        rows = "".join(f"| {tool.link} | {self.about[tool.name]} |\n" for tool in self.tools)
        return f"| tool | |\n|---|---|\n{rows}"

    def _tools(self, tools: list[Tool]) -> str:
        if len(tools) == len(self.tools):
            return "all tools"
        links = [tool.link for tool in tools]
        return links[0] if len(links) == 1 else f"{', '.join(links[:-1])} and {links[-1]}"

    def block(self, name: str) -> str:
        """What belongs between the marks of this name."""
        kinds: dict[str, Callable[[], str]] = {"tools": self.table, "index": self.index}
        if name in kinds:
            return kinds[name]()
        return self.group(name.removeprefix("group: ")) if name.startswith("group: ") else self.tool(name)

    def renewed(self, text: str) -> str:
        """A page with its blocks made anew."""
        return MARKED.sub(lambda mark: mark[1] + self.block(mark[2]) + mark[4], text)
