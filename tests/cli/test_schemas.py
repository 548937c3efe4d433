"""The JSON Schemas of schemas/ take what the program writes, have a word for every key of it, and refuse what is spoiled."""
import copy
import json
import re

import numpy as np
import onnx
import pytest
from jsonschema import Draft202012Validator
from onnx import TensorProto, helper, numpy_helper
from referencing import Registry, Resource

from cli_support import ROOT, needs_constraints
from report_support import data_of
from search_support import masked_attention, save_inputs
from test_inspect import rich_model
from test_region_scaling import residual_stream

SCHEMAS = {path.name.split(".")[0]: json.loads(path.read_text()) for path in sorted((ROOT / "schemas").glob("*.schema.json"))}
REGISTRY = Registry().with_resources([(f"{name}.schema.json", Resource.from_contents(schema)) for name, schema in SCHEMAS.items()])
TOLERANCE = ["--atol", "1e-3", "--rtol", "1e-2"]
# What docs/formats.md says may be absent, as paths with * for indices; and maps from names, of which any element may be.
OPTIONAL = {
    "answer": r"accumulation|attention|block_scales|input_shapes(/.*)?|objective|lowest|build|"
    r"build/layer_precisions/.*|target_hash|sets|bits|curve|network|network/time_us/.*|"
    r"layers/\*/reason/(low|exponents)|repairs/\*/(exponents|used|edits)|(sets|int8/scales)/.*",
    "header": "",
    "trial": r"names|raised/.*|used|worst|problem|outputs|margin|repairs|joined|validation|samples_passed|sample_used",
    "verify": r"(error|predicted|float32)/problem|float32",
    "target": r"source|cast_share|product_cast_share|weight_us_per_mb|cached_mb|processors|kernels"
    r"|kernels/us/\*/(?!kind|precision).*|measured|measured/(threads|libraries(/.*)?)|tflops/(?!fp32).*|groups"
    r"|groups/\*/us/.*",
    "inspect": r"engine|(.*/)?(initializers|opsets/.*|attributes|domain|metrics/.*|attributes/[^/]*)|nodes|.*(branch|body)/nodes",
}
MAPS = r"opsets|.*/metrics|.*/attributes"


def validator(name, schema=None):
    return Draft202012Validator({"$ref": f"{name}.schema.json"} if schema is None else schema, registry=REGISTRY)


def closed(schema, root):
    """The same schema without room for keys that it does not describe."""
    if isinstance(schema, list):
        return [closed(each, root) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = dict(schema)
    if "$ref" in schema and "properties" in schema:
        base = root["$defs"][schema.pop("$ref").rsplit("/", 1)[1]]
        schema = {**base, "required": base["required"] + schema["required"], "properties": base["properties"] | schema["properties"]}
    result = {key: value if key in ("if", "not") else closed(value, root) for key, value in schema.items()}
    if "properties" in result and "$schema" not in result and isinstance(result["properties"], dict):
        result.setdefault("additionalProperties", False)
    return result


STRICT = closed(SCHEMAS["inspect"], SCHEMAS["inspect"])


def check(name, document):
    errors = [f"{error.json_path}: {error.message}" for error in validator(name).iter_errors(document)]
    assert errors == [], (name, errors[:5])


def inspected(outcome):
    document = json.loads(outcome.out)
    check("inspect", document)
    errors = [f"{error.json_path}: {error.message}" for error in validator("inspect", STRICT).iter_errors(document)]
    assert errors == [], ("keys that the schema does not describe", errors[:5])
    return document


def places(document, at=()):
    """Paths to all values below, of lists the first two elements."""
    if isinstance(document, dict):
        inner = list(document.items())
    else:
        inner = list(enumerate(document))[:2] if isinstance(document, list) else []
    for key, value in inner:
        yield (*at, key)
        yield from places(value, (*at, key))


def at(document, path):
    for key in path:
        document = document[key]
    return document


def refuses_what_is_spoiled(name, document, part=None):
    """Tries a wrong type for every value, every object without each of its keys, and with an unknown one."""
    accepts = validator(name).is_valid
    assert accepts(document)
    keys_may_be_added = name == "inspect"
    for path in [(), *places(document)]:
        where = "/".join("*" if isinstance(step, int) else step for step in path)
        holder = {"whole": copy.deepcopy(document)}
        *upper, key = ("whole", *path)
        inner = at(holder, upper)
        value = inner[key]
        if isinstance(value, dict):
            inner[key] = {**value, "made up": [[{}]]}
            assert accepts(holder["whole"]) == (keys_may_be_added and not re.fullmatch(MAPS, where)), (where, "an unknown key")
        inner[key] = [[{}]]
        assert not accepts(holder["whole"]), (where, "another type")
        if path and isinstance(inner, dict):
            del inner[key]
            assert accepts(holder["whole"]) == bool(re.fullmatch(OPTIONAL[part or name], where)), (where, "a missing key")


@pytest.mark.parametrize("name", ["answer", "inspect", "journal", "report", "target", "verify"])
def test_they_are_schemas(name):
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["title"] and schema["description"]
    for word in ("", 1, None, [], {}):
        assert not validator(name).is_valid(word)


def squares(path):
    """Squares beyond float16 ahead of a mean; two outputs, of which one is then infinite."""
    random = np.random.default_rng(2)
    nodes = [helper.make_node("Mul", ["x", "x"], ["squares"], "Square"),
             helper.make_node("ReduceMean", ["squares"], ["mean"], "Mean", axes=[-1]),
             helper.make_node("Add", ["mean", "tiny"], ["safe"], "Epsilon"),
             helper.make_node("Sqrt", ["safe"], ["root"], "Root"),
             helper.make_node("Div", ["x", "root"], ["y"], "Norm"),
             helper.make_node("MatMul", ["y", "w"], ["z"], "Out")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, width]) for name, width in (("x", 16), ("root", 1), ("z", 16))]
    graph = helper.make_graph(nodes, "squares", infos[:1], infos[1:],
                              [numpy_helper.from_array(random.normal(size=(16, 16)).astype(np.float32), "w"),
                               numpy_helper.from_array(np.float32(1e-12), "tiny")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": random.normal(0, 1000, (4, 16)).astype(np.float32)} for _ in range(4)]


def constraints(path):
    onnx.save(needs_constraints(), path)
    return [{"x": np.random.default_rng(i).uniform(1, 2, (1, 1, 256, 256)).astype(np.float32)} for i in range(4)]


def uneven_channels(path):
    random = np.random.default_rng(7)
    gamma = np.ones(16, np.float32)
    gamma[3] = 100
    weights = {"gamma": gamma, "beta": np.zeros(16, np.float32), "w": random.normal(size=(16, 8)).astype(np.float32)}
    nodes = [helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["t"], "Norm"),
             helper.make_node("MatMul", ["t", "w"], ["y"], "Product"), helper.make_node("Identity", ["t"], ["z"], "Out")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [24, width]) for name, width in (("x", 16), ("y", 8), ("z", 16))]
    graph = helper.make_graph(nodes, "uneven", infos[:1], infos[1:], [numpy_helper.from_array(v, n) for n, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": random.normal(size=(24, 16)).astype(np.float32)} for _ in range(4)]


def has(key, rows):
    return any(key in row for row in rows)


# Model, options, verdict, and what makes the answer worth a look.
SEARCHES = {
    "fp16": (
        constraints,
        ["--fp16", "--objective", "smallest", "--fusion", "none", *TOLERANCE],
        "found",
        lambda a: a["held_out"] and a["layers"][0]["reason"]["exponents"],
    ),
    "fp16 and bf16": (
        squares,
        ["--fp16", "--bf16", "--objective", "smallest", "--fusion", "none", *TOLERANCE],
        "found",
        lambda a: len(a["precisions"]) == 2,
    ),
    "no repairs": (
        squares,
        ["--fp16", "--objective", "smallest", "--no-repair", "--fusion", "none", *TOLERANCE],
        "found",
        lambda a: has("problem", a["trials"]) and has("outputs", a["trials"]) and not a["repairs"],
    ),
    "int8 and fp16": (
        masked_attention,
        [
            "--int8",
            "--precision",
            "float16",
            "float32",
            "--metric",
            "rel-l2",
            "--threshold",
            "0.2",
            "--objective",
            "smallest",
        ],
        "found",
        lambda a: a["int8"]["scales"] and "clamp" in {each["kind"] for each in a["repairs"]},
    ),
    "equalised": (
        uneven_channels,
        [
            "--int8",
            "--metric",
            "rel-l2",
            "--threshold",
            "0.04",
            "--margin",
            "0.9",
            "--calib-base-cls",
            "max",
            "--objective",
            "smallest",
        ],
        "found",
        lambda a: has("exponents", a["repairs"]),
    ),
    "scaled": (
        residual_stream,
        ["--fp16", "--objective", "smallest", "--fusion", "none", "--metric", "rel-l2", "--threshold", "0.01"],
        "found",
        lambda a: has("edits", a["repairs"]) and has("used", a["repairs"]),
    ),
    "not reachable": (
        constraints,
        ["--fp16", "--lower", "Add", "Sub", "--fusion", "none", *TOLERANCE],
        "not-reachable",
        lambda a: True,
    ),
    "time limit": (
        constraints,
        ["--fp16", "--fusion", "none", "--time-limit", "1ms", *TOLERANCE],
        "unverified",
        lambda a: True,
    ),
    "one trial": (
        squares,
        ["--fp16", "--max-trials", "1", "--no-repair", "--objective", "smallest", "--fusion", "none", *TOLERANCE],
        "unverified",
        lambda a: len(a["trials"]) == 1,
    ),
}


def searched(run, tmp_path, which):
    """The answer, the lines of the journal, and the data of the page."""
    make, words, verdict, worth = SEARCHES[which]
    save_inputs(tmp_path / "in.json", make(tmp_path / "m.onnx"))
    outcome = run("precision", "search", "m.onnx", "--load-inputs", "in.json", *words, "--save-answer", "a.json", "--journal", "j.jsonl")
    answer = json.loads((tmp_path / "a.json").read_text())
    assert answer["verdict"] == verdict and worth(answer), outcome
    journal = tmp_path / "j.jsonl"
    assert run("report", "a.json", "-o", "r.html").code == 0
    lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    return answer, lines, data_of((tmp_path / "r.html").read_text())


@pytest.mark.parametrize("which", SEARCHES)
def test_answers_journals_and_reports(which, run, tmp_path):
    answer, lines, report = searched(run, tmp_path, which)
    check("answer", answer)
    assert lines or which == "time limit"
    for line in lines:
        check("journal", line)
    check("report", report)
    assert json.loads(run("inspect", "data", "a.json", "--json").out) == answer


@pytest.mark.parametrize("which", ["no repairs", "equalised", "scaled"])
def test_spoiled_answers_and_journals(which, run, tmp_path):
    answer, (header, *trials), _ = searched(run, tmp_path, which)
    refuses_what_is_spoiled("answer", {**answer, "trials": []})
    refuses_what_is_spoiled("journal", header, "header")
    for trial in trials[:5]:
        refuses_what_is_spoiled("journal", trial, "trial")
    for key, value in (("raised", {"fp32": "0-"}), ("raised", {"fp64": "0"}), ("kind", "guess"), ("cost", [0, 0]), ("used", "Infinity")):
        assert not validator("journal").is_valid({**trials[0], key: value})
    for key, value in (("version", 1), ("version", 3), ("verdict", "maybe"), ("precisions", ["fp17"]), ("trials", [{**trials[0], "x": 1}])):
        assert not validator("answer").is_valid({**answer, key: value})


def test_spoiled_data_of_a_report(run, tmp_path):
    searched(run, tmp_path, "fp16")
    assert run("convert", "m.onnx", "--answer", "a.json", "-o", "typed.onnx").code == 0
    assert run("report", "a.json", "--typed", "typed.onnx", "--compare", "a.json", "-o", "r.html").code == 0
    report = data_of((tmp_path / "r.html").read_text())
    check("report", report)
    shown, cast = report["answers"][0], report["typed"]["casts"][0]
    spoiled = [{**report, "version": 2}, {**report, "answers": []}, {**report, "answers": [shown] * 3}, {**report, "charts": {}},
               {**report, "answers": [{**shown, "answer": {**shown["answer"], "verdict": "maybe"}}]}, {**report, "answers": [shown["answer"]]},
               {**report, "typed": {**report["typed"], "casts": [{**cast, "origin": "unknown"}]}}, {**report, "typed": {"casts": []}}]
    for each in spoiled:
        assert not validator("report").is_valid(each), each


@pytest.mark.parametrize("words, code", [([], 0), (["--runner", "onnxrt"], 0), (["--atol", "0", "--rtol", "1e-12"], 1)])
def test_verify(words, code, run, tmp_path):
    searched(run, tmp_path, "fp16")
    outcome = run("verify", "m.onnx", "--answer", "a.json", "--load-inputs", "in.json", "--save-json", "-", *words)
    assert outcome.code == code, outcome
    verdict = json.loads(outcome.out)
    check("verify", verdict)
    refuses_what_is_spoiled("verify", verdict)
    assert not validator("verify").is_valid({**verdict, "version": 2})


def test_verify_where_nothing_is_finite(run, tmp_path):
    wild = squares(tmp_path / "m.onnx")
    save_inputs(tmp_path / "wild.json", wild)
    save_inputs(tmp_path / "in.json", [{"x": sample["x"] / 1000} for sample in wild])
    assert run("precision", "search", "m.onnx", "--load-inputs", "in.json", "--fp16", "--metric", "rel-l2", "--threshold", "0.1",
               "--no-repair", "--objective", "smallest", "--fusion", "none", "--save-answer", "a.json", "--no-journal").code == 0
    outcome = run("verify", "m.onnx", "--answer", "a.json", "--load-inputs", "wild.json", "--save-json", "-")
    assert outcome.code == 1, outcome
    verdict = json.loads(outcome.out)
    assert verdict["error"]["used"] is None and verdict["error"]["problem"]
    check("verify", verdict)
    refuses_what_is_spoiled("verify", verdict)


def test_targets(run, model, tmp_path):
    for path in sorted((ROOT / "data/targets").glob("*.json")):
        check("target", json.loads(path.read_text()))
    for words in ([], [model, "--fp16", "--bf16"]):
        outcome = run("target", "measure", *words, "-o", "t.json", "--threads", "1")
        assert outcome.code == 0, outcome
        target = json.loads((tmp_path / "t.json").read_text())
        check("target", target)
        assert set(target) == {"format", "version", "name", "measured", "tflops", "bandwidth_gb_per_s", "launch_us", "cast_share", "product_cast_share", "weight_us_per_mb", "cached_mb", "groups"}
        assert {"fp32", "fp16", "bf16"} <= set(target["tflops"]) and bool(target["groups"]) == bool(words)
    assert any({"fp32", "fp16", "bf16"} <= set(group["us"]) for group in target["groups"])
    refuses_what_is_spoiled("target", target)
    for key, value in (("version", 2), ("bandwidth_gb_per_s", 0), ("launch_us", -1), ("tflops", {"fp32": -1}), ("tflops", {"fp16": 1})):
        assert not validator("target").is_valid({**target, key: value})


def test_inspect_model(run, model, dynamic_model, tmp_path):
    onnx.save(rich_model(), tmp_path / "rich.onnx")
    for words in ([], ["--show", "layers"], ["--show", "weights"], ["--show", "layers", "attrs", "weights"]):
        document = inspected(run("inspect", "model", "rich.onnx", "--json", *words))
    assert document["nodes"][0] and has("attributes", document["nodes"])
    refuses_what_is_spoiled("inspect", document)
    inspected(run("inspect", "model", dynamic_model, "--json"))
    document = inspected(run("inspect", "model", model, "--fp16", "--save-engine", "a.plan", "--json"))
    assert document["engine"]["layers"]
    engine = inspected(run("inspect", "model", "a.plan", "--json"))
    refuses_what_is_spoiled("inspect", engine)
    waiting = inspected(run("inspect", "model", dynamic_model, "--fp16", "--display-as", "trt", "--json"))
    assert waiting["kind"] == "engine"


def test_inspect_data_and_differences(run, model, tmp_path):
    for name, words in (("a", []), ("b", ["--seed", "2"])):
        assert run("run", model, "--onnxrt", "--iterations", "2", "--save-outputs", f"{name}.json", "--save-inputs", "in.json",
                   *words).code == 0
    assert run("run", model, "--onnxrt", "--load-inputs", "in.json", "--load-outputs", "a.json", "--compare", "simple", "l2",
               "--save-accuracy-results", "c.json").code in (0, 1)
    odd = [{"x": np.array([np.nan, 1, np.inf], np.float32), "empty": np.zeros((0, 2), np.float32), "flag": np.array(True)}]
    save_inputs(tmp_path / "odd.json", odd)
    kinds = []
    for words in (["data", "a.json"], ["data", "a.json", "--all"], ["data", "in.json"], ["data", "odd.json"], ["data", "c.json", "--all"],
                  ["diff", "a.json", "b.json"], ["diff", "a.json", "a.json"], ["diff", "a.json", "odd.json"]):
        document = inspected(run("inspect", *words, "--json"))
        kinds.append(document["kind"])
        refuses_what_is_spoiled("inspect", document)
    assert set(kinds) == {"results", "inputs", "accuracy-results"}
    (tmp_path / "x.txt").write_text("Add:float32\nB:float16\n")
    (tmp_path / "y.txt").write_text("Add:float16\nC:float16\n")
    document = inspected(run("inspect", "diff", "x.txt", "y.txt", "--json"))
    assert document["kind"] == "layers" and document["different"]
    refuses_what_is_spoiled("inspect", document)
