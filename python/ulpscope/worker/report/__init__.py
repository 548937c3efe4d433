"""The page that shows the answer of a search: one HTML file that holds all it needs."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from .page import page

Json = Dict[str, Any]


def report_page(
    server: Any,
    answer: str,
    source: str,
    precisions: List[Json],
    commands: List[List[str]],
    trial_command: str,
    typed: Optional[Json],
    compare: Optional[Json],
) -> str:
    """The text of the page.

    ``answer``: the document of docs/formats.md, checked by the program. ``source``: the file it came from.
    ``precisions``: from low to high, their names and what they hold (report.schema.json).
    ``commands``: [title, command line]. ``trial_command``: without the trial's number at its end; empty for an answer
    that is in no file. ``typed``: ``path`` and
    ``casts`` of a typed model, or None. ``compare``: ``answer`` and ``source`` of another one, or None.
    """
    answers = [{"source": source, "answer": json.loads(answer)}]
    if compare is not None:
        answers.append({"source": compare["source"], "answer": json.loads(compare["answer"])})
    return page(answers, precisions, [(title, command) for title, command in commands], trial_command, typed)
