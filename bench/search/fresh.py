"""How many fresh samples an answer passes: a search, then samples that it has not seen, one by one.

Trained networks of pip packages with generated texts and images, and the networks of kinds.py with random weights.
Every sample is judged by the tolerance of the search, on its own. Searches get the samples 0 to `--samples`; the fresh
ones come from other seeds. Tolerances are half of the error of everything in fp16, so that layers have to be kept
(those given here, where that is not finite), for the smallest set. An answer with repairs is judged without them, too:
`harmed` counts samples that fail with them and pass without.
"""

from __future__ import annotations

import json
import math
import pathlib
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import kinds  # noqa: E402
import measure  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402

sys.path.insert(0, str(models.ROOT / "tests" / "models"))
import make_models  # noqa: E402

import ulpscope  # noqa: E402

Sample = Dict[str, np.ndarray]
FIRST_FRESH = 1000


class Case(NamedTuple):
    """A network, the sample of a seed, and the tolerance that is asked for."""

    name: str
    model: str
    sample: Callable[[int], Sample]
    metric: str
    threshold: float


def reader(folder: pathlib.Path) -> Case:
    """The recognizer of texts: probabilities of characters over places."""
    model = make_models.ocr_model("rec")
    path = folder / "ocr_rec.onnx"
    onnx.save(model, path)
    sample = make_models.text_image(model.graph.input[0].name, 48, 320, 1, 26, 0.5, 0.5)
    return Case("ocr_rec", str(path), sample, "kl", 0.02)


def trained(name: str, folder: pathlib.Path) -> Case:
    """One of make_models.py, whose samples it writes here."""
    held: List[Callable[[int], Sample]] = []
    save = make_models.save
    make_models.save = lambda out, name, model, sample: (onnx.save(model, out / f"{name}.onnx"), held.append(sample))
    try:
        make_models.MODELS[name](folder)
    finally:
        make_models.save = save
    metric, threshold = {"minilm": ("one-minus-cos", 1e-3), "minilm_planted": ("one-minus-cos", 1e-3)}.get(
        name, ("rel-l2", 5e-3)
    )
    return Case(name, str(folder / f"{name}.onnx"), held[0], metric, threshold)


def built(kind: kinds.Kind, folder: pathlib.Path, count: int) -> Case:
    """One with random weights."""
    path, values = kinds.make(kind, folder, count)
    at = lambda seed: seed if seed < FIRST_FRESH else count - 1 - (seed - FIRST_FRESH)
    return Case(
        kind.name, str(path), lambda seed: {name: value[at(seed)] for name, value in values.items()}, "rel-l2", 1e-3
    )


def without_repairs(answer: ulpscope.Answer) -> ulpscope.Answer:
    """The same layers, on the network of the file."""
    values = answer.to_dict()
    values["repairs"] = []
    words, kept, skipping = values["run_options"], [], False
    for word in words:
        if word.startswith("--"):
            skipping = word in ("--repairs", "--clamp-constants")
        if not skipping:
            kept.append(word)
    values["run_options"] = kept
    return ulpscope.Answer.from_json(json.dumps(values))


def row_of(case: Case, searched: int, fresh: int) -> Dict[str, Any]:
    samples = [case.sample(i) for i in range(searched)]
    anything = 2.0 if case.metric == "one-minus-cos" else 1e9
    low = ulpscope.search(
        case.model, samples, metric=case.metric, threshold=anything, objective="smallest", repair=False
    )
    threshold = low.error / 2 if low.verdict == "found" and 0 < low.error < math.inf else case.threshold
    start = time.monotonic()
    answer = ulpscope.search(case.model, samples, metric=case.metric, threshold=threshold, objective="smallest")
    seconds = time.monotonic() - start
    judged = lambda answer: [
        ulpscope.verify(case.model, answer, [case.sample(FIRST_FRESH + i)]).used for i in range(fresh)
    ]
    used = judged(answer)
    bare = judged(without_repairs(answer)) if answer.repairs else used
    return {
        "network": case.name, "metric": f"{case.metric} {threshold:.3g}", "verdict": answer.verdict,
        "kept": len(answer.layers),
        "repairs": len(answer.repairs), "harmed": sum(u > 1 >= b for u, b in zip(used, bare)),
        "passed": sum(u <= 1 for u in used), "of": fresh, "worst": round(max(used), 3), "search s": round(seconds, 1),
    }  # fmt: skip


def main() -> None:
    parser = measure.parser(__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--samples", type=int, default=8, help="of a search (default 8)")
    parser.add_argument("--fresh", type=int, default=100, help="to judge (default 100)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        makers: Dict[str, Callable[[], Case]] = {"ocr_rec": lambda: reader(place)}
        for name in ("ocr_det", "ocr_cls", "minilm", "minilm_planted", "needs_constraints"):
            makers[name] = lambda name=name: trained(name, place)
        for kind in kinds.KINDS:
            if kind.make is not None:
                makers[kind.name] = lambda kind=kind: built(kind, place, options.samples + options.fresh)
        if unknown := set(options.networks or ()) - set(makers):
            raise SystemExit(f"no network {', '.join(sorted(unknown))}; there are {', '.join(makers)}")
        rows = []
        for name in options.networks or list(makers)[: 2 if options.quick else None]:
            rows.append(row_of(makers[name](), options.samples, 5 if options.quick else options.fresh))
            print(rows[-1], file=sys.stderr, flush=True)
    passed, judged = sum(row["passed"] for row in rows), sum(row["of"] for row in rows)
    rows.append({"network": "together", "passed": passed, "of": judged})
    measure.report(rows, measure.environment(), options.output)


if __name__ == "__main__":
    main()
