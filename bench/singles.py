"""What a search of formats for weights predicts of single layers, and of all of them, beside what these measure.

For each format alone (its scales from the largest weights), `search` with a budget of bits says what each layer in it
is predicted to cost. Layers spread over depth and kind are run in it by themselves, all others in float32, and once all
of them. Errors are means of the divergence (kl) over the samples. Columns: the rank correlation (Spearman) of predicted
and measured errors, the quarters of measured / predicted, and for all layers together the sum of the predicted errors,
what is measured, and the ratio of both.
"""

from __future__ import annotations

import base64
import io
import json
import pathlib
import statistics
from typing import Any, Dict, List, Sequence

import measure
import numpy as np
import ulpscope

Samples = List[Dict[str, np.ndarray]]


def load(path: pathlib.Path) -> Samples:
    decode = lambda text: np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)  # noqa: E731
    return [{name: decode(value["array"]) for name, value in feed.items()} for feed in json.loads(path.read_text())]


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def outputs_of(model: str, samples: Samples, precisions: Dict[str, str], output: str) -> List[np.ndarray]:
    engine = ulpscope.Engine(model, layer_precisions=precisions)
    return [log_probabilities(engine.run(sample)[output]) for sample in samples]


def divergence(golden: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> float:
    """The mean over the samples of the mean over their rows."""
    return float(np.mean([(np.exp(p) * (p - q)).sum(-1).mean() for p, q in zip(golden, other)]))


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    ranks = [np.argsort(np.argsort(np.asarray(values))) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def predicted_errors(model: str, samples: Samples, name: str, keep: List[str]) -> Dict[str, float]:
    """By layer, from the answer of a search in this format alone."""
    answer = ulpscope.search(
        model, samples, precisions=[name], hold_out=False, metric="kl", threshold=1e9, objective="error", bits=32,
        keep=keep, weight_scales="amax", progress=False,
    )  # fmt: skip
    saved = answer.to_dict()
    effects = saved["sensitivities"]
    # An amplitude, as a share of the threshold.
    return {saved["names"][layer]: 1e9 * effect**2 for layer, effect in zip(effects["layer"], effects["effect"])}


def spread(names: List[str], count: int) -> List[str]:
    """As many, at even distances in the order of execution."""
    return [names[round(i * (len(names) - 1) / max(count - 1, 1))] for i in range(min(count, len(names)))]


def measure_format(model: str, samples: Samples, name: str, keep: List[str], count: int) -> Dict[str, Any]:
    predicted = predicted_errors(model, samples, name, keep)
    output = ulpscope.Engine(model).outputs[0].name
    golden = outputs_of(model, samples, {}, output)
    chosen = spread(list(predicted), count)
    measured = [divergence(golden, outputs_of(model, samples, {layer: name}, output)) for layer in chosen]
    ratios = statistics.quantiles([m / predicted[layer] for layer, m in zip(chosen, measured)], n=4)
    together = divergence(golden, outputs_of(model, samples, dict.fromkeys(predicted, name), output))
    total = sum(predicted.values())
    return {
        "format": name,
        "layers": f"{len(chosen)} of {len(predicted)}",
        "spearman": spearman([predicted[layer] for layer in chosen], measured),
        "measured / predicted, quarters": ", ".join(f"{ratio:.2f}" for ratio in ratios),
        "sum predicted": total,
        "all measured": together,
        "all / sum": together / total,
    }


def main() -> None:
    parser = measure.parser(__doc__ or "")
    parser.add_argument("model", help="an ONNX file of a language model, whose first output are logits")
    parser.add_argument("--inputs", type=pathlib.Path, required=True, help="samples, as Polygraphy saves inputs")
    parser.add_argument(
        "--formats", nargs="+", default=["fp8-weights", "int4-64", "nvfp4-weights"], help="for weights alone"
    )
    parser.add_argument("--keep", nargs="+", default=[], help="layers that stay in float32")
    parser.add_argument("--layers", type=int, default=40, help="how many are run by themselves")
    options = parser.parse_args()
    samples = load(options.inputs)
    count = 4 if options.quick else options.layers
    rows = [measure_format(options.model, samples, name, options.keep, count) for name in options.formats]
    measure.report(rows, measure.environment(), options.output)


if __name__ == "__main__":
    main()
