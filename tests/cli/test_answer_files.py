"""The files of `precision search`: what is in them, and which of them is replaced."""
import json
import random

import numpy as np
import onnx
import pytest

from search_support import answer_of, answers, plain, save_inputs, version_1

BASE = ["--fp16", "--objective", "smallest", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2"]


@pytest.fixture
def search(run, model, tmp_path):
    inputs = save_inputs(tmp_path / "in.json", [
        {"x": np.random.default_rng(i).uniform(1, 2, (1, 1, 256, 256)).astype(np.float32)} for i in range(4)])

    def call(*words, path=model, base=BASE):
        return run("precision", "search", path, "--load-inputs", inputs, *base, *words)

    return call


def random_trials(chance, like, names, count):
    """Trials in the form of version 1, each with other sets or changes of an earlier one."""
    trials = []
    for _ in range(count):
        raised = dict(chance.choice(trials)["raised"]) if trials and chance.random() < 0.6 else {}
        for _ in range(chance.choice([0, 1, 3, 40])):
            first, length = chance.randrange(len(names)), chance.choice([1, 1, 1, 9])
            precision = chance.choice(["fp32", "fp16", "bf16", None])
            for name in names[first:first + length]:
                raised.pop(name, None)
                if precision:
                    raised[name] = precision
        trial = json.loads(json.dumps(like))
        trial.update(kind=chance.choice(["search", "hold-out"]), margin=chance.choice([0.25, 1.0]), joined=chance.randrange(2), validation=chance.randrange(2),
                     repairs=chance.choice([[], ["clamp mask:32752"]]), samples_passed=chance.randrange(-1, 3),
                     raised=[[name, raised[name]] for name in names if name in raised])
        trial["error"].update(used=chance.choice([0.1, 0.5, 3.25, "inf"]), problem=chance.choice(["", "1 NaN"]))
        trial["passed"] = float(trial["error"]["used"]) <= trial["margin"]
        trials.append(trial)
    return trials


@pytest.mark.parametrize("seed", range(4))
def test_python_reads_what_the_program_writes(seed, search, run, tmp_path):
    """The program reads version 1, which lists each set, and writes version 2."""
    assert search().code == 0
    chance = random.Random(seed)
    names = [f"/layer_{i}/MatMul" for i in range(chance.choice([3, 60, 300]))]
    old = version_1(answer_of(tmp_path))
    old["sensitivities"] = [{"name": name, "op": "MatMul", "effect": chance.choice([0.5, "inf", 1e-9]), "measured": chance.random() < 0.2}
                            for name in names]
    old["sets"] = {}
    old["trials"] = random_trials(chance, old["trials"][0], names, 60)
    (tmp_path / "old.json").write_text(json.dumps(old))
    outcome = run("inspect", "data", "old.json", "--json")
    assert outcome.code == 0, outcome
    written = json.loads(outcome.out)
    assert written["version"] == 2 and len(outcome.out) < len(json.dumps(old))
    read = answers.expand_answer(written)
    assert plain(read["trials"]) == old["trials"], f"seed {seed}"
    assert read["sensitivities"] == old["sensitivities"]
    assert [len(trial["raised"]) for trial in read["trials"]] == [len(trial["raised"]) for trial in old["trials"]]
    assert [trial["raised"][:6] for trial in read["trials"]] == [[tuple(pair) for pair in trial["raised"][:6]] for trial in old["trials"]]
    # And again: what it reads of version 2 is what it wrote.
    (tmp_path / "new.json").write_text(outcome.out)
    assert run("inspect", "data", "new.json", "--json").out == outcome.out


def test_an_answer_of_version_1_still_serves(search, run, tmp_path):
    assert search("--save-answer", "new.json").code == 0
    (tmp_path / "old.json").write_text(json.dumps(version_1(answer_of(tmp_path, "new.json"))))
    for name in ("old", "new"):
        outcome = run("convert", "needs_constraints.onnx", "--answer", f"{name}.json", "-o", f"{name}.onnx")
        assert outcome.code == 0, outcome
    old, new = (onnx.load(tmp_path / f"{name}.onnx").graph.SerializeToString() for name in ("old", "new"))
    assert old == new


def test_precisions_that_do_not_exist_are_refused(search, run, tmp_path):
    assert search("--save-answer", "new.json").code == 0
    answer = answer_of(tmp_path, "new.json")
    answer["precisions"] += ["e5m2"]
    (tmp_path / "other.json").write_text(json.dumps(answer))
    outcome = run("convert", "needs_constraints.onnx", "--answer", "other.json", "-o", "t.onnx")
    assert outcome.code == 1 and "'other.json': precisions[1]: expected the name of a precision" in outcome.text, (
        outcome
    )
    assert "got 'e5m2'" in outcome.text and not (tmp_path / "t.onnx").exists()


def test_a_journal_of_version_1_is_refused(search, tmp_path):
    assert search().code == 0
    journal = tmp_path / "needs_constraints.fp16.journal.jsonl"
    journal.write_text(journal.read_text().replace('"version":2', '"version":1', 1))
    outcome = search("--continue")
    assert outcome.code == 1 and "expected version 2 of the format, got 1; try without --continue" in outcome.err, outcome


def test_precisions_have_files_of_their_own(search, tmp_path):
    assert search().code == 0
    before = (tmp_path / "needs_constraints.fp16.answer.json").read_bytes()
    search(base=["--bf16", "--fp16", "--fusion", "none", "--atol", "1e-3", "--rtol", "1e-2"])
    assert (tmp_path / "needs_constraints.fp16-bf16.answer.json").exists()
    assert (tmp_path / "needs_constraints.fp16-bf16.journal.jsonl").exists()
    assert (tmp_path / "needs_constraints.fp16.answer.json").read_bytes() == before


@pytest.mark.parametrize("words", [[], ["--save-answer", "a.json"]])
def test_a_found_answer_stays(words, search, tmp_path):
    name = words[-1] if words else "needs_constraints.fp16.answer.json"
    beside = name.replace(".json", ".unverified.json")
    assert search(*words).code == 0
    before = (tmp_path / name).read_bytes()
    for _ in range(2):  # What was not found is replaced.
        outcome = search(*words, "--time-limit", "1ms")
        assert outcome.code == 1 and f"'{name}' stays" in outcome.out and f"Saving answer to {beside}" in outcome.out, outcome
        assert (tmp_path / name).read_bytes() == before
        assert answer_of(tmp_path, beside)["verdict"] == "unverified"
    out_of_reach = search(*words, base=["--fp16", "--fusion", "none", "--lower", "Add", "--atol", "0", "--rtol", "1e-12"])
    assert out_of_reach.code == 1 and answer_of(tmp_path, name.replace(".json", ".not-reachable.json"))["layers"]
    assert (tmp_path / name).read_bytes() == before
    # The same search again is what replaces it.
    outcome = search(*words)
    assert outcome.code == 0 and "stays, since" not in outcome.out and answer_of(tmp_path, name)["verdict"] == "found"
    assert len(list(tmp_path.glob(f"{name.removesuffix('.json')}*.json"))) == 3


def test_what_was_found_for_other_questions_and_models_stays(search, model, tmp_path):
    name = "needs_constraints.fp16.answer.json"
    assert search().code == 0
    before = (tmp_path / name).read_bytes()
    loose = ["--fp16", "--fusion", "none", "--atol", "1e-2", "--rtol", "1e-2"]
    for _ in range(2):
        outcome = search(base=loose)
        assert outcome.code == 0 and "is the answer of another search" in outcome.out, outcome
    assert (tmp_path / name).read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("*.answer*")) == [name.replace(".json", ".2.json"), name]
    fastest = search("--objective", "fastest")
    assert fastest.code == 0 and (tmp_path / name).read_bytes() == before, fastest
    assert answer_of(tmp_path, name.replace(".json", ".3.json"))["objective"] == "fastest"
    # Nothing stays where it is said.
    assert search("--force", base=loose).code == 0
    assert answer_of(tmp_path, name)["criterion"] == answer_of(tmp_path, name.replace(".json", ".2.json"))["criterion"]
    # A path that the user names may have another question's answer, not another model's.
    assert search("--save-answer", "a.json").code == 0
    assert "stays, since" not in search("--save-answer", "a.json", base=loose).out
    before = (tmp_path / "a.json").read_bytes()
    changed = onnx.load(model)
    changed.graph.doc_string = "another"
    onnx.save(changed, tmp_path / "other.onnx")
    outcome = search("--save-answer", "a.json", path="other.onnx")
    assert outcome.code == 0 and "is the answer for another model" in outcome.out, outcome
    assert (tmp_path / "a.json").read_bytes() == before and (tmp_path / "a.2.json").exists()


def test_names_of_nodes_that_are_no_utf8(run, search, tmp_path, model):
    """ONNX Runtime takes such files. The answer has readable names, and finds its layers by them."""
    proto = onnx.load(model)
    proto.graph.node[1].name = "Sum_"
    content = proto.SerializeToString()
    assert content.count(b"Sum_") == 1
    (tmp_path / "bytes.onnx").write_bytes(content.replace(b"Sum_", b"S\xa4m_"))
    found = search("--save-answer", "a.json", path="bytes.onnx")
    assert found.code == 0, found
    assert "S\ufffdm_" in [layer["name"] for layer in json.loads((tmp_path / "a.json").read_text())["layers"]]
    for tool in (["convert", "bytes.onnx", "a.json", "-o", "t.onnx"], ["verify", "bytes.onnx", "a.json"]):
        outcome = run(*tool, "--load-inputs", "in.json")
        assert outcome.code == 0, outcome
