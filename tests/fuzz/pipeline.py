#!/usr/bin/env python3
"""Random graphs through convert, answers, search and verify; failing ones are shrunk.

    python tests/fuzz/pipeline.py --count 500 --seed 0      the graphs of the seeds 0 ... 499
    python tests/fuzz/pipeline.py --graph 417               one graph, printed

Typed models have to be valid, to give the bits of their assignment, and to run in ONNX Runtime; all ways to say one
assignment have to give the same bits; answers have to hold, with the errors that they name. Every other graph has
values that float16 does not hold (stress.py). Finds ulpscope as tests/fuzz/run.py does, and ends as it does.
"""

from __future__ import annotations

import pathlib
import sys

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from fuzz.run import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(suite="pipeline", description=__doc__))
