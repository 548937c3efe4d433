"""Answers of a graph: that every way to carry them out gives the same bits, and that what they say of errors is so."""

from __future__ import annotations

import pathlib
import tempfile
from collections import Counter
from typing import Any, Dict, List, Optional

import numpy as np

from . import program
from .checks import BITS, INTERNAL, REFUSED, WRONG
from .conversions import as_layer_precisions, calibrate, check_file, convert, lowerable, refusal, same_assignment
from .graph import Arrays, Graph, onnxruntime_run
from .shrink import tensor_values
from .steps import LONG_NAMES, NARROW, Broken, RefusedTruly, Step, known, messages, rel_l2, same_bits, samples_like

USUAL_SPREAD, WIDER_SPREAD = (0.7, 1.3), (0.4, 2.1)  #: Of the samples of a search, and of fresh ones.
FRESH = 6
SAME = 1e-9  #: Relative: two sums in double of the same numbers.
ANYTHING, NOTHING = 1e30, 1e-30  #: Thresholds.
#: What a repair may cost on samples that nobody searched on, where both ways are within the tolerance or both beyond.
NOISE = 2.0


class Fixture:
    """A graph with its samples, and what it computes on them in float32."""

    def __init__(self, graph: Graph, step: Step) -> None:
        import ulpscope

        self.graph, self.step, self.model = graph, step, graph.model()
        self.exact = ulpscope.Engine(self.model, fusion=step.fusion, threads=1)
        self.samples = self._usable(4, step.seed, USUAL_SPREAD)

    def _usable(self, count: int, seed: int, spread: Any) -> List[Arrays]:
        """Random samples, or that of the graph where others are no inputs for it."""
        made = samples_like(self.graph.feeds[0], count, seed, spread)
        try:
            shapes = [[v.shape for v in outputs.values()] for outputs in self.golden(made)]
        except RuntimeError:
            return [self.graph.feeds[0]] * count
        same = all(each == shapes[0] for each in shapes)
        return made if same else [self.graph.feeds[0]] * count

    def golden(self, samples: List[Arrays]) -> List[Arrays]:
        """In float32."""
        return [self.exact.run(sample) for sample in samples]

    def fresh(self) -> List[Arrays]:
        """Samples unlike those of the search."""
        return self._usable(FRESH, self.step.seed + 1, WIDER_SPREAD)

    def errors(self, engine: Any, samples: List[Arrays]) -> List[float]:
        """Of each sample."""
        return [rel_l2(g, engine.run(s)) for g, s in zip(self.golden(samples), samples)]


def _engine(what: str, *arguments: Any, **options: Any) -> Any:
    """An engine that there must be."""
    import ulpscope

    try:
        return ulpscope.Engine(*arguments, threads=1, **options)
    except (RuntimeError, AssertionError) as error:
        kind = INTERNAL if type(error).__name__ == "InternalError" else REFUSED
        raise Broken(kind, f"Engine of {what}: {error}", "") from None


def _search(fixture: Fixture, precisions: List[str], **options: Any) -> Any:
    """An answer. Raises Broken, or RefusedTruly where nothing can be judged."""
    import ulpscope

    samples = options.pop("samples", fixture.samples)
    try:
        with messages():
            return ulpscope.search(
                fixture.model, samples, precisions, fusion=fixture.step.fusion, progress=False, threads=1, **options
            )
    except (RuntimeError, AssertionError) as error:
        if type(error).__name__ == "InternalError":
            raise Broken(INTERNAL, f"search: {error}", "") from None
        text, kept = str(error), {"keep": options.get("keep", []), "lower": [], "layer_precisions": {}}
        if "there is nothing to search" in text and not lowerable(fixture.step, fixture.graph, kept):
            raise RefusedTruly("nothing to lower") from None
        raise _unjudged(text, fixture) from None


def _unjudged(text: str, fixture: Fixture) -> Exception:
    """Whether it is so that nothing can be judged."""
    golden = [value for outputs in fixture.golden(fixture.samples) for value in outputs.values()]
    finite = all(np.isfinite(v).all() for v in golden if v.dtype.kind == "f")
    if ("expected numbers, got" in text or "expected finite numbers, got" in text) and not finite:
        return RefusedTruly("golden outputs that are no numbers")
    if "expected outputs with elements" in text and not any(v.size for v in golden):
        return RefusedTruly("outputs without elements")
    usable = all(v.size and np.isfinite(v).all() for s in fixture.samples for v in s.values() if v.dtype.kind == "f")
    if "expected values to take scales from" in text and not usable:
        return RefusedTruly("nothing to calibrate with")
    return Broken(REFUSED, f"search: {text}", "")


def _layers_alone(answer: Any) -> Dict[str, str]:
    return {layer.name: LONG_NAMES[layer.precision] for layer in answer.layers}


# Answers that keep what they are told to.


def say_again(step: Step, graph: Graph, counts: Counter) -> List[Broken]:
    """One assignment as an answer, as layer_precisions, as a typed model, and as words of the program."""
    fixture = Fixture(graph, step)
    answer = _search(
        fixture, step.precisions, keep=known(step.keep, graph), threshold=ANYTHING, objective="smallest",
        hold_out=False, repair=False,
    )  # fmt: skip
    engine = _engine("an answer", fixture.model, answer=answer)
    want = [engine.run(feed) for feed in graph.feeds]
    found: List[Broken] = []
    low = step.precisions[0]
    if low in NARROW:
        told = _engine(
            "layer_precisions", fixture.model, precision=low, layer_precisions=_layers_alone(answer), fusion=step.fusion
        )
        found += _compare("answer and layer_precisions", [told.run(feed) for feed in graph.feeds], want)
    found += _typed(fixture, answer, want, counts)
    if step.program:
        found += _words(fixture, answer, want)
        counts["assignments said in words of the program"] += 1
    counts[f"{step.stage} {'+'.join(step.precisions)}"] += 1
    return found


def _compare(what: str, got: List[Arrays], want: List[Arrays]) -> List[Broken]:
    text = next((text for a, b in zip(got, want) if (text := same_bits(a, b))), "")
    return [Broken(BITS, what, text)] if text else []


def _typed(fixture: Fixture, answer: Any, want: Optional[List[Arrays]], counts: Counter) -> List[Broken]:
    """The typed model of an answer. `want`: what the answer gives on the feeds of the graph."""
    graph, step = fixture.graph, fixture.step
    try:
        typed, report, log = convert(fixture.model, answer, data=graph.feeds)
    except (RuntimeError, AssertionError) as error:
        problem = refusal(error, step, graph, {"keep": step.keep, "lower": [], "layer_precisions": {}})
        return [problem] if isinstance(problem, Broken) else []
    found = check_file(typed, graph, step.precisions, counts)
    if not answer.repairs and "int8" not in step.precisions:
        found += same_assignment(typed, report, graph, step)
    if not report.kept_back:
        engine = _engine("the typed model of an answer", typed.SerializeToString(), fusion=step.fusion)
        found += _compare("answer and its typed model", [engine.run(feed) for feed in graph.feeds], want)
    return found


def _words(fixture: Fixture, answer: Any, want: List[Arrays]) -> List[Broken]:
    """As options of `ulpscope run`, an answer's file, and a script."""
    step, graph = fixture.step, fixture.graph
    found: List[Broken] = []
    with tempfile.TemporaryDirectory(prefix="ulpscope-fuzz-") as name:
        folder = pathlib.Path(name)
        (folder / "m.onnx").write_bytes(fixture.model)
        program.save_inputs(folder / "in.json", graph.feeds)
        answer.save(folder / "a.json")
        ways = {"its words": answer.to_dict()["run_options"], "--answer": ["--answer", "a.json"]}
        flags = ["--trt", *(f"--{p}" for p in step.precisions), "--fusion", step.fusion]
        flags += ["--assume-lowest", "--precision-constraints", "obey"]
        wants = dict.fromkeys(ways, want)
        if "int8" not in step.precisions:
            report = _report(fixture, answer)
            if report is not None:
                told = _engine(
                    "layer_precisions", fixture.model, precision=step.precisions[0],
                    layer_precisions=as_layer_precisions(report), fusion=step.fusion,
                )  # fmt: skip
                same = [told.run(feed) for feed in graph.feeds]
                (folder / "post.py").write_text(report.postprocess_script)
                ways["--layer-precisions"] = [*flags, "--layer-precisions", *report.layer_precisions.split()]
                ways["a script"] = [*flags, "--trt-network-postprocess-script", "post.py"]
                wants["--layer-precisions"] = wants["a script"] = same
        for way, words in ways.items():
            try:
                got = program.run(folder, "m.onnx", *words)
            except RuntimeError as error:
                found.append(Broken(REFUSED, f"ulpscope run, {way}: {error}", ""))
                continue
            found += _compare(f"answer and {way}", got, wants[way])
    return found


def _report(fixture: Fixture, answer: Any) -> Any:
    try:
        return convert(fixture.model, answer, data=fixture.graph.feeds)[1]
    except (RuntimeError, AssertionError):
        return None  # Said by the comparison with the typed model.


# Answers that a search finds.


def find(step: Step, graph: Graph, counts: Counter) -> List[Broken]:
    """A search with a threshold that everything low misses, or not by much; and whether its answer holds."""
    fixture = Fixture(graph, step)
    held_out = [] if step.held_out == 0 else samples_or(fixture, step.held_out)
    options: Dict[str, Any] = dict(threshold=_threshold(fixture), objective=step.objective)
    options["hold_out"] = held_out or False
    if "int8" in step.precisions:
        options["calibration"] = calibrate(graph)
    answer = _search(fixture, step.precisions, **options)
    counts[f"search {'+'.join(step.precisions)}: {answer.verdict}"] += 1
    counts["answers that keep layers"] += bool(answer.layers)
    counts["answers with repairs"] += bool(answer.repairs)
    engine = _engine("an answer", fixture.model, answer=answer)
    found = _error_is_as_said(fixture, answer, engine, held_out, options["threshold"])
    found += _verified(fixture, answer, engine, options["threshold"])
    found += _typed(fixture, answer, [engine.run(feed) for feed in graph.feeds], counts)
    if answer.repairs:
        found += _repairs_pay(fixture, answer, engine, options["threshold"], options.get("calibration"))
    elif "int8" not in step.precisions:
        told = _engine(
            "layer_precisions", fixture.model, precision=step.precisions[0], layer_precisions=_layers_alone(answer),
            fusion=step.fusion,
        )  # fmt: skip
        found += _compare(
            "answer and layer_precisions",
            [told.run(s) for s in fixture.samples],
            [engine.run(s) for s in fixture.samples],
        )
    return found


def samples_or(fixture: Fixture, count: int) -> List[Arrays]:
    """To hold out."""
    return fixture._usable(count, fixture.step.seed + 2, USUAL_SPREAD)


def _threshold(fixture: Fixture) -> float:
    """A share of the error of everything in the lowest float precision."""
    narrow = [p for p in fixture.step.precisions if p in NARROW] or ["fp16"]
    everything = _engine("everything low", fixture.model, precision=narrow[0], fusion=fixture.step.fusion)
    error = max(fixture.errors(everything, fixture.samples))
    return error * fixture.step.share if 0 < error < 1e3 else 1e-3


def _error_is_as_said(
    fixture: Fixture, answer: Any, engine: Any, held_out: List[Arrays], threshold: float
) -> List[Broken]:
    """The error of the answer by NumPy, on the samples of the search and on those held out."""
    search, others = fixture.errors(engine, fixture.samples), fixture.errors(engine, held_out)
    said = answer.search.used * threshold  # The error itself is said to six digits.
    # Samples that were held out may have joined those of the search.
    worst, possible = max(search), [max(search), *others]
    found = []
    if not any(_same(said, each) for each in possible) or (said < worst and not _same(said, worst)):
        found.append(Broken(WRONG, "the error of the answer", f"{said:.9g} is said, got {search} and {others}"))
    if text := _verdict_is_sound(fixture, answer, search, others, threshold):
        errors = f"{text}; threshold {threshold:.9g}, errors {search} and {others}"
        found.append(Broken(WRONG, f"the verdict {answer.verdict}", errors))
    return found


def tensors(graph: Graph) -> List[np.ndarray]:
    """All values of the first feed."""
    return [values[0] for values in tensor_values(graph).values()]


def _same(a: float, b: float) -> bool:
    return a == b or bool(abs(a - b) <= SAME * max(abs(a), abs(b))) or not (np.isfinite(a) or np.isfinite(b))


def _verdict_is_sound(fixture: Fixture, answer: Any, search: List[float], others: List[float], threshold: float) -> str:
    """What is wrong with a verdict by these errors. Everything in float32 is an answer: one has to be found, unless the
    file has float16 of its own, which golden outputs have and raised layers have not."""
    worst, held_out = max(search), max(others, default=0.0)
    if answer.verdict == "found":
        holds = max(worst, held_out) <= threshold * (1 + SAME)
        return "" if holds else "it does not hold"
    if answer.verdict == "fails-held-out":
        return "" if worst <= threshold * (1 + SAME) and held_out > threshold else "it holds, or fails on others"
    own = any(value.dtype == np.float16 for value in tensors(fixture.graph))
    return "" if answer.verdict == "not-reachable" and own and worst > 0 else answer.message


def _verified(fixture: Fixture, answer: Any, engine: Any, threshold: float) -> List[Broken]:
    """verify() on the samples of the search and on fresh ones says what NumPy says."""
    import ulpscope

    found = []
    for what, samples in (("of the search", fixture.samples), ("fresh", fixture.fresh())):
        errors = fixture.errors(engine, samples)
        try:
            with messages():
                check = ulpscope.verify(fixture.model, answer, samples, progress=False, threads=1)
        except (RuntimeError, AssertionError) as error:
            if type(error).__name__ == "InternalError":
                found.append(Broken(INTERNAL, f"verify: {error}", ""))
            elif isinstance(problem := _unjudged_fresh(str(error), fixture, samples), Broken):
                found.append(problem)
            continue
        said = check.used * threshold
        if not _same(said, max(errors)) or check.passed != (max(errors) <= threshold):
            text = f"samples {what}: {check}, by NumPy {max(errors):.9g} of {threshold:.9g}"
            found.append(Broken(WRONG, "verify", text))
    return found


def _unjudged_fresh(text: str, fixture: Fixture, samples: List[Arrays]) -> Exception:
    finite = all(np.isfinite(v).all() for g in fixture.golden(samples) for v in g.values() if v.dtype.kind == "f")
    if ("expected numbers, got" in text or "expected finite numbers, got" in text) and not finite:
        return RefusedTruly("golden outputs that are no numbers")
    return Broken(REFUSED, f"verify: {text}", "")


def _repairs_pay(fixture: Fixture, answer: Any, engine: Any, threshold: float, calibration: Any) -> List[Broken]:
    """On fresh samples the answer is not worse than the same layers without its repairs."""
    import json

    from ulpscope import Answer

    bare = answer.to_dict()
    bare["repairs"] = []
    del bare["build"]  # The words say it, too.
    there = {node.name for node in fixture.graph.nodes}
    bare["layers"] = [layer for layer in bare["layers"] if layer["name"] in there]  # Repairs add some.
    bare["run_options"] = [
        word for word in _without_repairs(bare["run_options"]) if ":" not in word or word.rsplit(":", 1)[0] in there
    ]
    try:
        plain = _engine("an answer without its repairs", fixture.model, answer=Answer.from_json(json.dumps(bare)))
    except Broken as broken:
        return [broken]
    fresh = fixture.fresh()
    repaired, unrepaired = fixture.errors(engine, fresh), fixture.errors(plain, fresh)
    worse = [a for a, b in zip(repaired, unrepaired) if a > threshold and (b <= threshold or a > NOISE * b)]
    if not worse:
        return []
    kinds = sorted({repair.kind for repair in answer.repairs})
    text = f"threshold {threshold:.3g}, with them {repaired}, without {unrepaired}: {[r.text for r in answer.repairs]}"
    return [Broken(WRONG, f"repairs make it worse: {', '.join(kinds)}", text)]


def _without_repairs(words: List[str]) -> List[str]:
    """The words of an answer without options that repair."""
    result, skipping = [], False
    for word in words:
        if word.startswith("--"):
            skipping = word in ("--clamp-constants", "--repairs")
        if not skipping:
            result.append(word)
    return result


# An answer that leaves the model as it is, in ONNX Runtime.


def keep_all(step: Step, graph: Graph, counts: Counter) -> List[Broken]:
    """verify() of the unchanged model passes in ONNX Runtime, whatever that makes of it."""
    import ulpscope

    fixture = Fixture(graph, step)
    answer = _search(fixture, ["fp16"], threshold=NOTHING, hold_out=False, objective="smallest")
    layers = ulpscope.Engine(fixture.model, answer=answer, threads=1).layers
    if answer.repairs or any(layer.precision == "fp16" for layer in layers):
        raise RefusedTruly("some layers are exact in float16")
    try:
        with messages():
            check = ulpscope.verify(
                fixture.model,
                answer,
                fixture.samples,
                runner="onnxruntime",
                rtol=1e-5,
                atol=1e-5,
                progress=False,
                threads=1,
            )
    except Exception as error:  # Those of ONNX Runtime have no base.
        outputs = _optimized(fixture)
        if outputs is None:
            raise RefusedTruly("ONNX Runtime does not run the model itself") from None
        if "expected numbers, got" in str(error) and any(np.isnan(v).any() for v in outputs if v.dtype.kind == "f"):
            raise RefusedTruly("golden outputs that are no numbers in ONNX Runtime") from None
        kind = INTERNAL if type(error).__name__ == "InternalError" else REFUSED
        return [Broken(kind, f"verify in ONNX Runtime: {error}", "")]
    counts["unchanged models that were verified in ONNX Runtime"] += 1
    return [] if check.passed else [Broken(WRONG, "verify of the unchanged model in ONNX Runtime", f"{check}")]


def _optimized(fixture: Fixture) -> Optional[List[np.ndarray]]:
    """Outputs of ONNX Runtime for all samples; None: it does not run the model."""
    try:
        return [v for each in fixture.samples for v in onnxruntime_run(fixture.model, each, optimize=True)]
    except Exception:
        return None
