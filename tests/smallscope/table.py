"""The table of forms: functions that add one operator, given in one way, to a site, and return its float32 output."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Tuple

from .site import Site

MICROSOFT = "com.microsoft"

Build = Callable[[Site, str], str]
Merge = Callable[[Site, str, str], str]


class Form(NamedTuple):
    """One operator with one way of giving its operands and attributes."""

    name: str
    build: Build
    tags: Tuple[str, ...]
    """core: met by all others, on several shapes; point, row, product: what fusion joins; norm; move; int8; control."""


FORMS: Dict[str, Form] = {}
MERGES: Dict[str, Merge] = {}


def add(name: str, build: Build, *tags: str) -> None:
    """Enters a form."""
    assert name not in FORMS, name
    FORMS[name] = Form(name, build, tags)


def add_merge(name: str, build: Merge) -> None:
    """Enters a layer that reads two branches."""
    assert name not in MERGES, name
    MERGES[name] = build


def tagged(*tags: str) -> List[Form]:
    """The forms that have all these tags."""
    return [form for form in FORMS.values() if all(tag in form.tags for tag in tags)]
