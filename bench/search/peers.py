"""A search beside the tools that choose layers elsewhere: one table, the same samples, tolerances and judges.

fp16: ModelOpt AutoCast, onnxconverter-common (auto_convert_mixed_precision), and Polygraphy's strategies as `ulpscope
precision` has them; int8: onnxsim's rankings (quant_sensitivity) and the strategies. Each chooses on the search
samples; its typed model is judged by ulpscope and by ONNX Runtime (judging.py), on these and on samples held out.
"kept" counts layers that the search chooses among and that the result leaves in float32. Rankings answer with their
shortest beginning that passes (bisected); "first 4", "first 8", "first 16" keep as many of each ranking, all with the
same int8 scales and no repairs. Seconds, and those of processors, which other load moves less, are those of
processes; for the converters and rankings those of the call alone.

The verdict holds each peer against ours: kept, evaluations and processor seconds against "smallest, whole tolerance"
(peers use it all), time against "fastest", samples held out against both searches with their usual margin, errors of
rankings against ours of as many layers. A peer whose model fails its tolerance is not compared. "BEHIND" is an
exception, to be explained; those are printed again below the table.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import converters  # noqa: E402
import measure  # noqa: E402
import models  # noqa: E402
import onnx  # noqa: E402
from judging import Judge, Spent, Tolerance  # noqa: E402


class Case(NamedTuple):
    model: str
    low: str  #: fp16 or int8
    tolerance: Tolerance
    products: bool = False  #: Only products with weights may be int8, which is all that onnxsim ranks.


EMBEDDING = Tolerance("one-minus-cos", 1e-2, output="sentence_embedding")
CASES = {
    "minilm_planted fp16, rel-max 1e-2": Case("minilm_planted", "fp16", Tolerance("rel-max", 1e-2)),
    "minilm fp16, rel-l2 1e-2": Case("minilm", "fp16", Tolerance("rel-l2", 1e-2)),
    "minilm fp16, rel-l2 1e-3": Case("minilm", "fp16", Tolerance("rel-l2", 1e-3)),
    "ocr_cls fp16, rel-l2 5e-3": Case("ocr_cls", "fp16", Tolerance("rel-l2", 5e-3)),
    "magika fp16, atol 1e-3 rtol 1e-2": Case("magika", "fp16", Tolerance("allclose", 1e-3, 1e-2)),
    "minilm int8, 1-cos 1e-2": Case("minilm", "int8", EMBEDDING),
    "minilm int8 products, 1-cos 3e-3": Case("minilm", "int8", EMBEDDING._replace(threshold=3e-3), products=True),
    "smollm2 int8, kl 1": Case("smollm2", "int8", Tolerance("kl", 1)),
    "smollm2 int8 products, kl 0.1": Case("smollm2", "int8", Tolerance("kl", 0.1), products=True),
}
FIRST = (4, 8, 16)
RANKINGS = ("fisher,taylor", "oracle")  #: In calls of their own.
PACKAGES = {
    "AutoCast": "nvidia-modelopt",
    "onnxconverter-common": "onnxconverter-common",
    "onnxsim": "onnxsim",
}


class Failure(Exception):
    """A tool that stopped, or took too long: why, in a sentence."""


class Bench:
    """One case: every tool as a method that returns a row."""

    def __init__(self, options: Any, name: str, folder: pathlib.Path) -> None:
        self.options, self.name, self.case, self.folder = options, name, CASES[name], folder
        files = options.path / self.case.model
        model = onnx.load(str(files) + ".onnx")
        converters.named(model)  # So that a layer has one name everywhere.
        self.nodes = [node.name for node in model.graph.node]
        constants = {tensor.name for tensor in model.graph.initializer}
        constants.update(node.output[0] for node in model.graph.node if node.op_type == "Constant")
        self.products = {
            node.name
            for node in model.graph.node
            if node.op_type in ("MatMul", "Gemm", "Conv") and node.input[1] in constants
        }
        self.model = folder / "model.onnx"
        onnx.save(model, str(self.model))
        self.judge = Judge(str(options.program), self.model, files, self.case.tolerance, folder)
        self.precision = [f"--{self.case.low}"]
        if self.case.low == "int8":
            self.cache = folder / "scales.cache"
            self.precision += ["--calibration-cache", str(self.cache)]
            calibration = ["--calib-base-cls", "max", "--load-inputs", str(self.judge.calibration_file)]
            self.judge.call(["run", str(self.model), "--trt", *self.precision, *calibration, "-q"])
        self.lowest = ["--fusion", "none", "--assume-lowest", "--precision-constraints", "obey"]
        self.candidates: List[str] = []
        self.fixed: List[str] = []  #: Candidates that stay high in every row.

    # Rows

    def row(self, tool: str, make: Callable[[pathlib.Path], Dict[str, Any]]) -> Dict[str, Any]:
        """`make` writes the typed model; it returns what it spent, evaluations, and kept where files do not tell."""
        typed = self.folder / "typed.onnx"
        typed.unlink(missing_ok=True)
        row: Dict[str, Any] = {"case": self.name, "tool": tool}
        try:
            made = make(typed)
        except (Failure, RuntimeError) as error:
            return {**row, "result": str(error.args[0]), "spent": None}
        figures = self.judge.figures(typed)
        kept = made.get("kept", self.kept_in(typed))
        row.update(kept=kept, evaluations=made["evaluations"], spent=made["spent"], result=made.get("note", ""))
        row.update(ours=figures["ulpscope"], theirs=figures["onnxruntime"], us=figures["us"])
        errors = [row[side]["error"] for side in ("ours", "theirs")]
        print(f"{tool}: kept {kept}, errors {errors[0]:.3g} and {errors[1]:.3g}", file=sys.stderr, flush=True)
        return row

    def kept_in(self, typed: pathlib.Path) -> Optional[int]:
        """Candidates that are float32 nodes of the file."""
        try:
            model = onnx.shape_inference.infer_shapes(onnx.load(str(typed)))
        except Exception:  # noqa: BLE001 - an invalid file
            return None
        infos = [*model.graph.value_info, *model.graph.output]
        types = {value.name: value.type.tensor_type.elem_type for value in infos}
        high = {node.name for node in model.graph.node if types.get(node.output[0]) == onnx.TensorProto.FLOAT}
        return len(high.intersection(self.candidates))

    # Ours

    def search(self, objective: str, words: List[str]) -> Tuple[Dict[str, Any], Spent]:
        answer = self.folder / "answer.json"
        answer.unlink(missing_ok=True)
        held = [] if "--no-hold-out" in words else ["--hold-out", str(self.judge.held_file)]
        inputs = ["--load-inputs", str(self.judge.search_file), *held]
        command = ["precision", "search", str(self.model), *self.precision, *inputs, *self.case.tolerance.options()]
        command += ["--objective", objective, "--no-journal", "--save-answer", str(answer), *words, "-q"]
        if self.fixed:
            command += ["--keep", *self.fixed]
        try:
            _, spent = self.judge.call(command)
        except RuntimeError as error:  # Held-out samples that fail are an answer all the same.
            spent = error.args[1]
            if not answer.exists() or json.loads(answer.read_text())["verdict"] != "fails-held-out":
                raise
        return json.loads(answer.read_text()), spent

    def ours(self, objective: str, words: List[str]) -> Callable[[pathlib.Path], Dict[str, Any]]:
        def make(typed: pathlib.Path) -> Dict[str, Any]:
            answer, spent = self.search(objective, words)
            stays = answer["message"].startswith("Stay")
            command = ["convert", str(self.model), "--answer", str(self.folder / "answer.json"), "-o", str(typed)]
            if stays:  # There is nothing to convert.
                shutil.copy(self.model, typed)
            else:
                self.judge.call([*command, "--no-verify", "--no-python-checks", *self.judge.shapes, "-q"])
            raised = {layer["name"] for layer in answer["layers"] if layer["precision"] == "fp32"}
            kept = len(raised.intersection(self.candidates))
            kept, notes = (len(self.candidates), ["stays in float32"]) if stays else (kept, [])
            notes += [f"{len(answer['repairs'])} repairs"] if answer["repairs"] else []
            notes += ["says that held-out samples fail"] if answer["verdict"] == "fails-held-out" else []
            return {"spent": spent, "evaluations": answer["evaluations"], "kept": kept, "note": "; ".join(notes)}

        return make

    def rank(self) -> Tuple[List[str], Dict[str, Any]]:
        """Our ranking: predicted effects on the search samples, which is all that other rankings see; no repairs."""
        words = ["--fusion", "none", "--no-repair", "--margin", "1", "--no-hold-out"]
        answer, spent = self.search("smallest", words)
        effects = answer["sensitivities"]
        order = sorted(range(len(effects["layer"])), key=lambda i: -float(effects["effect"][i]))
        names = [answer["names"][effects["layer"][i]] for i in order]
        return names, {"spent": spent, "evaluations": answer["evaluations"]}

    def find_candidates(self) -> None:
        """By a search of one sample that nothing passes."""
        one, answer = self.folder / "one.json", self.folder / "candidates.json"
        one.write_text(json.dumps(json.loads(self.judge.search_file.read_text())[:1]))
        command = ["precision", "search", str(self.model), *self.precision, "--load-inputs", str(one)]
        command += ["--fusion", "none", "--no-hold-out", "--no-journal", "--no-repair", "--save-answer", str(answer)]
        command += ["--metric", "rel-l2", "--threshold", "1e-30", "--max-trials", "1", "-q"]
        subprocess.run([self.judge.program, *command], capture_output=True, check=False)
        told = json.loads(answer.read_text())
        self.candidates = [told["names"][i] for i in told["sensitivities"]["layer"]]
        if self.case.products:
            self.fixed = [name for name in self.candidates if name not in self.products]
            self.candidates = [name for name in self.candidates if name in self.products]

    # Polygraphy's strategies

    def strategy(self, words: List[str]) -> Callable[[pathlib.Path], Dict[str, Any]]:
        def make(typed: pathlib.Path) -> Dict[str, Any]:
            golden, script = self.folder / "golden.json", self.folder / "compare.py"
            marks = ["--trt-outputs", "mark", "all"] if words[0] == "worst-first" else []
            inputs = ["--load-inputs", str(self.judge.search_file)]
            command = ["run", str(self.model), "--trt", *marks, "--fusion", "none", *inputs]
            _, before = self.judge.call([*command, "--save-outputs", str(golden), "-q"])
            script.write_text(
                f"import sys\nsys.path[:0] = [{str(HERE)!r}]\nimport judging\n"
                f"compare_outputs = judging.comparison(judging.{self.case.tolerance!r})\n"
            )
            command = ["precision", words[0], str(self.model), *words[1:], *self.precision, *inputs]
            command += ["--golden", str(golden), "--compare-func-script", f"{script}:compare_outputs"]
            command += [*self.lowest, *self.clamps()]
            text, spent = self.judge.call(command, self.options.limit)
            lines = [line.split("]", 1)[1].strip() for line in text.splitlines() if line.startswith("[I]")]
            kept = [line for line in lines if line in set(self.nodes)]
            evaluations = len(re.findall(r"^\[I\] Will run layer", text, re.M))
            kept = [name for name in kept if name in set(self.candidates)]  # The others follow their inputs.
            self.convert(kept, typed, self.clamps())
            return {"spent": before.plus(spent), "evaluations": evaluations, "kept": len(kept)}

        return make

    def clamps(self) -> List[str]:
        """Constants beyond float16, which a search would clamp first: theirs are clamped too."""
        if self.case.low != "fp16":
            return []
        model = onnx.load(str(self.model))
        values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        floats = {name: value for name, value in values.items() if value.dtype.kind == "f" and value.size}
        beyond = [name for name, value in floats.items() if abs(value).max() > 65504]
        return ["--clamp-constants", *beyond] if beyond else []

    def convert(self, kept: List[str], typed: pathlib.Path, words: List[str]) -> None:
        command = ["convert", str(self.model), *self.precision, "-o", str(typed), "--fusion", "none", *words]
        keep = [*kept, *self.fixed]
        command += ["--keep", *keep] if keep else []
        self.judge.call([*command, "--no-verify", "--no-python-checks", *self.judge.shapes, "-q"])

    # Other tools

    def worker(self, script: str, words: List[str]) -> subprocess.CompletedProcess[str]:
        command = [self.options.peers, str(HERE / script), *words]
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}  # Threads that spin take each other's cores.
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=self.options.limit, env=environment
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"not done after {self.options.limit} s") from None
        if result.returncode != 0:
            raise Failure(f"stops: {(result.stderr.strip().splitlines() or ['no message'])[-1][:160]}")
        return result

    def converter(self, tool: str) -> Callable[[pathlib.Path], Dict[str, Any]]:
        def make(typed: pathlib.Path) -> Dict[str, Any]:
            metric, threshold, rtol, output = self.case.tolerance
            words = [tool, str(self.model), str(self.judge.search_file), metric, str(threshold), str(rtol), output]
            figures = json.loads(self.worker("converters.py", [*words, str(typed)]).stdout.splitlines()[-1])
            note = "" if figures["edits"] == "none" else f"edits: {figures['edits']}"
            spent = Spent(figures["seconds"], figures["cpu"])
            return {"spent": spent, "evaluations": figures["evaluations"], "note": note}

        return make

    def rankings(self, methods: str) -> Dict[str, Tuple[List[str], Dict[str, Any]]]:
        """Of onnxsim, by method; those of one call share what they spent."""
        saved = self.folder / "ranking.json"
        output = self.case.tolerance.output or onnx.load(str(self.model)).graph.output[0].name
        self.worker("onnxsim_ranking.py", [methods, str(self.model), str(self.judge.search_file), output, str(saved)])
        figures = json.loads(saved.read_text())
        spent = {"spent": Spent(figures["seconds"], figures["cpu"]), "evaluations": figures["evaluations"]}
        known = set(self.candidates)
        return {m: ([name for name in order if name in known], spent) for m, order in figures["orders"].items()}

    def first(self, order: List[str], count: int, figures: Dict[str, Any]) -> Callable[[pathlib.Path], Dict[str, Any]]:
        def make(typed: pathlib.Path) -> Dict[str, Any]:
            self.convert(order[:count], typed, [])
            return {**figures, "kept": min(count, len(order))}

        return make

    def shortest(self, order: List[str], figures: Dict[str, Any]) -> Callable[[pathlib.Path], Dict[str, Any]]:
        """The shortest beginning of a ranking that passes, by bisection."""

        def passes(count: int) -> bool:
            words = [f"{name}:float32" for name in [*order[:count], *self.fixed]]
            words = ["--layer-precisions", *words] if words else []
            error = self.judge.search_error([*self.precision, *self.lowest, *words])
            return error <= self.case.tolerance.limit

        def make(typed: pathlib.Path) -> Dict[str, Any]:
            start, tries, low, high = Spent.now(), 1, 0, len(order)
            if not passes(high):
                raise Failure(f"none of its beginnings passes, all {high} layers that it ranks neither")
            while low < high:
                middle, tries = (low + high) // 2, tries + 1
                low, high = (low, middle) if passes(middle) else (middle + 1, high)
            spent = figures["spent"].plus(Spent.now() - start)
            self.convert(order[:high], typed, [])
            return {
                "spent": spent,
                "evaluations": figures["evaluations"] + tries,
                "kept": high,
            }

        return make


SMALLEST, FASTEST, WHOLE = "ours, smallest", "ours, fastest", "ours, smallest, whole tolerance"
STRATEGIES = {
    "Polygraphy bisect forward": ["bisect", "--mode", "forward"],
    "Polygraphy bisect reverse": ["bisect", "--mode", "reverse"],
    "Polygraphy linear": ["linear", "--mode", "forward"],
    "Polygraphy worst-first": ["worst-first"],
}


def measured(bench: Bench) -> List[Dict[str, Any]]:
    """The rows of a case, ours first."""
    options, case = bench.options, bench.case
    bench.find_candidates()
    none = ["--fusion", "none"]
    rows = [
        bench.row(FASTEST, bench.ours("fastest", [])),
        bench.row(SMALLEST, bench.ours("smallest", none)),
        bench.row(WHOLE, bench.ours("smallest", [*none, "--margin", "1"])),
    ]
    if case.low == "fp16":
        for tool in ("AutoCast", "onnxconverter-common"):
            if tool in options.versions:
                rows.append(bench.row(tool, bench.converter(tool)))
    if not case.products:  # `ulpscope precision` chooses among all layers.
        for name, words in STRATEGIES.items():
            if words[0] not in options.skip:
                rows.append(bench.row(name, bench.strategy(words)))
    if case.low == "int8":
        order, figures = bench.rank()
        rows += [bench.row(f"ours, first {k}", bench.first(order, k, figures)) for k in FIRST]
        for methods in options.rankings if "onnxsim" in options.versions else []:
            try:
                found = bench.rankings(methods)
            except Failure as error:
                rows.append({"case": bench.name, "tool": f"onnxsim {methods}", "result": str(error), "spent": None})
                continue
            for method, (order, figures) in found.items():
                name = f"onnxsim {method}"
                rows.append(bench.row(name, bench.shortest(order, figures)))
                rows += [bench.row(f"{name}, first {k}", bench.first(order, k, figures)) for k in FIRST]
    return rows


def verdict(row: Dict[str, Any], of_case: Dict[str, Dict[str, Any]], limit: float) -> str:
    """A peer against ours, in words; nothing for our rows."""
    if row["tool"].startswith("ours"):
        return ""
    if row["spent"] is None:
        return "no result"
    sides = ("ours", "theirs")
    found: Dict[str, List[str]] = {"ahead": [], "level": [], "BEHIND": []}

    def compare(what: str, ours: Optional[float], peer: Optional[float], slack: float = 1.0) -> None:
        if ours is not None and peer is not None and ours == ours and peer == peer:
            level = ours == peer or peer / slack <= ours <= peer * slack
            state = "level" if level else "ahead" if ours < peer else "BEHIND"
            found[state].append(what + (f" ({ours:.3g} to {peer:.3g})" if state == "BEHIND" else ""))

    if ", first " in row["tool"]:
        ours = of_case.get("ours, " + row["tool"].split(", ")[1], {})
        if ours.get("spent") is None:
            return "nothing of ours to compare"
        for side, name in zip(sides, ("error", "error by onnxruntime")):
            compare(name, ours[side]["error"], row[side]["error"], 1.05)
    else:
        # The strategies were judged by ulpscope: what ONNX Runtime finds may differ by a little.
        if not (row["ours"]["error"] <= limit and row["theirs"]["error"] <= 1.05 * limit):
            return "ahead: its model fails the tolerance on the search samples"
        whole, fastest, smallest = (of_case[name] for name in (WHOLE, FASTEST, SMALLEST))
        if any(each["spent"] is None for each in (whole, fastest, smallest)):
            return "BEHIND: ours has no result"
        compare("kept", whole["kept"], row["kept"])
        compare("time", fastest["us"], row["us"], 1.005)
        for side, name in zip(sides, ("held out", "held out by onnxruntime")):
            compare(name, -min(fastest[side]["held"], smallest[side]["held"]), -row[side]["held"])
        compare("evaluations", whole["evaluations"], row["evaluations"] or None)
        compare("processor seconds", whole["spent"].cpu, row["spent"].cpu)
    return "; ".join(f"{state}: {', '.join(parts)}" for state, parts in reversed(found.items()) if parts)


def shown(row: Dict[str, Any], of_case: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
    tolerance = CASES[row["case"]].tolerance
    line = {"case": row["case"], "tool": row["tool"]}
    keys = ("kept", "error", "by onnxruntime", "held out", "by onnxruntime ", "evaluations", "seconds", "CPU s", "us")
    if row["spent"] is None:
        line.update(dict.fromkeys(keys, ""), verdict=verdict(row, of_case, tolerance.limit), notes=row["result"])
        return line
    ours, theirs = row["ours"], row["theirs"]
    judges = (("ulpscope", ours), ("onnxruntime", theirs))
    problems = [f"{who}: {side['problem']}" for who, side in judges if "problem" in side]
    values = ["?" if row["kept"] is None else row["kept"], f"{ours['error']:.2g}", f"{theirs['error']:.2g}"]
    values += [ours["held"], theirs["held"], row["evaluations"] or "-"]
    values += [f"{row['spent'].seconds:.1f}", f"{row['spent'].cpu:.1f}", f"{row['us']:.0f}"]
    notes = "; ".join([note for note in [row["result"]] if note] + problems).replace("|", "/")
    line.update(zip(keys, values), verdict=verdict(row, of_case, tolerance.limit), notes=notes)
    return line


def versions(python: Optional[str]) -> Dict[str, str]:
    """Of the peers that are there; the others are left out with a sentence."""
    result = {}
    for tool, package in PACKAGES.items():
        code = f"from importlib import metadata; print(metadata.version('{package}'))"
        there = python and shutil.which(python)
        found = there and subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        if found and found.returncode == 0:
            result[tool] = found.stdout.strip()
        else:
            print(f"{tool} is left out: {package} is not installed for --peers {python}", file=sys.stderr)
    return result


def main() -> None:
    parser = measure.parser(__doc__ or "")
    build = models.ROOT / "build" / "release" / "bin" / "ulpscope"
    parser.add_argument("--program", type=pathlib.Path, default=build, help="ulpscope")
    parser.add_argument("--peers", help="a Python with nvidia-modelopt[onnx], onnxconverter-common and onnxsim")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one call of a peer on one model")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--skip", nargs="*", default=[], help="strategies to leave out: bisect, linear, worst-first")
    parser.add_argument("--rankings", nargs="*", choices=RANKINGS, default=list(RANKINGS))
    options = parser.parse_args()
    options.path = options.path.resolve()
    options.program = options.program.resolve()
    options.versions = versions(options.peers)
    rows: List[Dict[str, Any]] = []
    for name in options.cases[:1] if options.quick else options.cases:
        if not (options.path / f"{CASES[name].model}.onnx").exists():
            print(f"{name}: left out, {CASES[name].model}.onnx is not in {options.path}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            of_case = measured(Bench(options, name, pathlib.Path(folder)))
        by_tool = {row["tool"]: row for row in of_case}
        rows += [shown(row, by_tool) for row in of_case]
        print(f"{name}: done", file=sys.stderr, flush=True)
    if rows:
        measure.report(rows, measure.environment(**options.versions), options.output)
        exceptions = [f"{row['case']}, {row['tool']}: {row['verdict']}" for row in rows if "BEHIND" in row["verdict"]]
        compared = any(row["verdict"] for row in rows)
        none = "no exception: ours is ahead or level on every line" if compared else "no peer was compared"
        print("\n" + "\n".join(exceptions or [none]))


if __name__ == "__main__":
    main()
