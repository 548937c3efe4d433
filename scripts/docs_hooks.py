"""For the site: links that leave docs/, or name a folder, have no page there, and become what they name; docs/api.md gets
the docstrings of the package."""
import pathlib
import posixpath
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from api_reference import reference  # noqa: E402

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page, **_: object) -> str:
    """Called by mkdocs for each page."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(match: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if place.startswith("docs/") and posixpath.splitext(place)[1]:
            return match[0]
        return match[1] if match[1].strip("`") == place else f"{match[1]} (`{place}` in the repository)"

    return _LINK.sub(named, markdown).replace("<!-- api -->", reference() if page.file.src_uri == "api.md" else "")
