"""An answer as a page."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

from .answer import Answer, as_answer
from .arguments import FilePath, checked
from .errors import Error, ErrorCode

if TYPE_CHECKING:
    import onnx

_LAYERS = '<section id="layers">'  #: Of the page.


@checked
def report(
    answer: Union[Answer, FilePath],
    out: FilePath = "report.html",
    typed: Union[FilePath, onnx.ModelProto, None] = None,
    compare: Optional[Union[Answer, FilePath]] = None,
) -> Path:
    """Writes one HTML file that needs no network: the verdict, the network, every layer and why it is kept, the trials;
    as `ulpscope report`. Returns its path.

    answer:  of ulpscope.search, or its file. That of ulpscope.torch.search has a section of modules, too.
    typed:   the model that ulpscope.convert made of the answer: the page lists its casts.
    compare: another answer, to be held against this one.

    Raises Error: INVALID_ARGUMENT for a typed model of another answer; IO where `out` cannot be written.

    >>> answer = ulpscope.search("model.onnx", samples, threshold=1e-2)
    >>> ulpscope.report(answer, "answer.html").stat().st_size > 10_000
    True
    """
    path = Path(out)
    with tempfile.TemporaryDirectory(prefix="ulpscope-") as folder:
        if typed is not None and not isinstance(typed, (str, os.PathLike)):
            import onnx

            file = os.path.join(folder, "typed.onnx")
            onnx.save_model(typed, file)
            typed = file
        other = as_answer(compare)._native if compare is not None else None
        shown = as_answer(answer)
        page = shown._native.report(path, os.fspath(typed) if typed is not None else "", other)
    page = page.replace(_LAYERS, shown._section() + _LAYERS, 1)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise Error(ErrorCode.IO, f"[report] out: cannot write '{path}': {error.strerror}") from error
    return path
