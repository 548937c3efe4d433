"""How far a long call is: for a callable, or as a bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional, Union


class Progress(NamedTuple):
    """What a progress callable is told, in the thread of the call, several times a second."""

    stage: str  #: "predicting", "searching", "checking held-out samples", ...
    done: int  #: Of the stage,
    all: int  #: of so many; 0: unknown.
    trials: int  #: So far.
    best: int  #: Layers of the smallest passing set so far; -1: none.


#: A callable; None: a bar in a terminal or a notebook, where tqdm is installed; False: nothing.
Watcher = Union[Callable[[Progress], object], bool, None]
Report = Optional[Callable[[str, int, int, int, int], None]]


def _in_notebook() -> bool:
    try:
        return type(sys.modules["IPython"].get_ipython()).__name__ == "ZMQInteractiveShell"
    except (KeyError, AttributeError):
        return False


def _make_bar() -> Any:
    """None where nobody would see it."""
    notebook = _in_notebook()
    if not notebook and not (sys.stderr is not None and sys.stderr.isatty()):
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(leave=False, bar_format="{desc} {bar} {n_fmt}/{total_fmt} [{elapsed}{postfix}]", mininterval=0.1)


@contextmanager
def watched(progress: Watcher) -> Iterator[Report]:
    """What the library is to call, while the block runs."""
    if callable(progress):
        watcher = progress

        def tell(stage: str, done: int, all: int, trials: int, best: int) -> None:
            watcher(Progress(stage, done, all, trials, best))

        yield tell
        return
    bar = None if progress is False else _make_bar()
    if bar is None:
        yield None
        return

    def draw(stage: str, done: int, all: int, trials: int, best: int) -> None:
        bar.set_description_str(stage, refresh=False)
        bar.total, bar.n = all or None, done
        if trials:
            bar.set_postfix_str(f"{trials} trials" + (f", {best} layers" if best >= 0 else ""), refresh=False)
        bar.refresh()

    try:
        yield draw
    finally:
        bar.close()
