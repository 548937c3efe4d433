"""The page that shows the answer of a search: one HTML file that holds all it needs."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from ..answers import expand_answer
from ..errors import WorkerError, missing_package


def make_page(server: Any, answer: str, source: str, commands: List[List[str]], typed: Optional[Dict[str, Any]]) -> str:
    """The text of the page.

    ``answer``: the document of docs/formats.md, checked by the program. ``source``: the file it came from.
    ``commands``: [title, command line]. ``typed``: ``path`` and ``casts`` of a typed model, or None.
    """
    try:
        import plotly
    except ImportError as error:
        raise missing_package("plotly", "for the charts of reports") from error
    if int(plotly.__version__.split(".")[0]) < 6:
        raise WorkerError(
            "unsupported",
            f"[report] expected plotly 6 or later, got {plotly.__version__}; try a newer one: pip install --upgrade plotly",
        )
    from .page import page

    return page(expand_answer(json.loads(answer)), source, [(title, command) for title, command in commands], typed)
