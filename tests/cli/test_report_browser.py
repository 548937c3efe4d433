"""The page of `ulpscope report` in a real browser: what people click, type, read and save."""

import csv
import io
import json
import math

import onnx
import pytest
from onnx import TensorProto

from browser import find_browser
from report_support import choose, data_of, kept_names, large_answer, names, press_button, status
from search_support import answers

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")

EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\"&amp;é"


def test_table_is_searched_filtered_sorted_and_paged(answer, opened, browser):
    large_answer(answer, layers=600, kept=47, trials=30)
    opened(answer)
    kept = answer["layers"]
    assert names(browser) == kept_names(answer)[:10] and status(browser) == "1–10 of 47 layers"
    press_button(browser, "Next")
    assert names(browser) == kept_names(answer)[10:20]
    press_button(browser, "»")
    assert names(browser) == kept_names(answer)[40:] and status(browser) == "41–47 of 47 layers"
    choose(browser, "Reason", "underflow")
    assert names(browser) == [layer["name"] for layer in kept if layer["reason"]["kind"] == "underflow"]
    choose(browser, "Operator", "Add")
    assert names(browser) == [layer["name"] for layer in kept if layer["reason"]["kind"] == "underflow" and layer["op"] == "Add"]
    choose(browser, "Reason", "")
    choose(browser, "Operator", "")
    block = kept[20]["name"].rsplit("/", 4)[0]
    choose(browser, "Block", block)
    assert names(browser) == [name for name in kept_names(answer) if name.startswith(block + "/")]
    choose(browser, "Block", "")
    choose(browser, "Search", f"{kept[3]['name'].rsplit('/')[-1]} {kept[3]['reason']['kind'].upper()}")
    assert names(browser) == [kept[3]["name"]]
    choose(browser, "Search", "nothing is called so")
    assert names(browser) == [] and status(browser) == "0 layers"
    choose(browser, "Search", "")
    # The largest first; infinities are.
    press_button(browser, "Effect")
    effects = sorted((float(layer["effect"]) for layer in kept), reverse=True)
    shown = browser.evaluate("[...document.querySelectorAll('#layers tbody tr')].map((row) => row.cells[3].textContent)")
    assert [float(text.replace("∞", "inf")) for text in shown] == pytest.approx(effects[:10], rel=6e-3)
    assert browser.evaluate("document.querySelectorAll('#layers th')[3].getAttribute('aria-sort')") == "descending"
    choose(browser, "Show", "")
    assert status(browser) == "1–10 of 600 layers"
    choose(browser, "Show", "following")
    press_button(browser, "Layer")
    assert names(browser) == answer["following"][:10]


def test_rows_open_to_their_reason_and_histogram(answer, opened, browser):
    opened(answer)
    browser.click("#layers .more")
    detail = browser.evaluate("document.querySelector('#layers .inner').textContent")
    assert answer["layers"][0]["reason"]["text"] in detail
    counts = answer["layers"][0]["reason"]["exponents"]["counts"]
    assert browser.evaluate("document.querySelectorAll('#layers .histogram .inside, #layers .histogram .outside').length") == sum(map(bool, counts))
    assert f"{sum(counts):,} value" in browser.evaluate("document.querySelector('.histogram').getAttribute('aria-label')")
    assert browser.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.press("Enter")
    assert browser.evaluate("document.querySelectorAll('#layers .inner').length") == 0


@pytest.mark.parametrize("version", [2, 1])
def test_a_click_on_a_trial_shows_its_set_and_the_command(version, answer, opened, browser, run, tmp_path):
    large_answer(answer, layers=300, kept=20, trials=60)
    trials = answers.expand_trials(answer["trials"], answer["names"])
    if version == 1:
        expanded = answers.expand_answer(answer)
        answer = {**expanded, "version": 1, "trials": [{**each, "raised": list(each["raised"])} for each in expanded["trials"]]}
    opened(answer)
    wanted = 47
    x, y = browser.evaluate(f"""(() => {{
        document.querySelector('.plot').scrollIntoView({{block: 'center'}});
        const marks = [...document.querySelectorAll('.plot .trial')];
        const box = document.querySelector('.plot').getBoundingClientRect();
        const alone = marks.map((mark) => mark.getBoundingClientRect()).map((b) => [b.left + b.width / 2, b.top + b.height / 2]);
        const far = alone.filter(([x, y]) => alone.every(([a, b]) => (a === x && b === y) || Math.hypot(a - x, b - y) > 6));
        return far[{wanted} % far.length];
    }})()""")
    browser.click_at(x, y)
    index = int(browser.evaluate("document.querySelector('#trials .panel h3').textContent").split()[1])
    assert browser.evaluate("document.querySelector('#trials .panel code').textContent").endswith(f"--answer shown.json -o needs_constraints.trial.onnx --trial {index}")
    # By number, too; all of the set is there.
    for number in (index, wanted, 59):
        browser.evaluate(
            "(() => { const i = document.querySelector('#trials .panel input');"
            f" i.value = {number}; i.dispatchEvent(new Event('change')); }})()"
        )
        listed = browser.evaluate("[...document.querySelectorAll('[data-set=\"All of its layers\"] li')].map((e) => e.textContent)")
        raised = [f"{name} {precision}" for name, precision in trials[number]["raised"]]
        assert sorted(listed) == sorted(raised)[:100] if len(raised) <= 100 else len(listed) == 100
        count = browser.evaluate("document.querySelector('[data-set=\"Only in the answer\"] summary').textContent")
        moved = {layer["name"] for layer in answer["layers"] if layer["reason"]["kind"] != "requested"} - {
            name for name, _ in trials[number]["raised"]
        }
        assert count == f"Only in the answer ({len(moved)})"


def test_the_command_of_a_trial_works(answer, opened, browser, run, tmp_path):
    opened(answer)
    sets = [len(each["raised"]) or 99 for each in answers.expand_trials(answer["trials"], answer["names"])]
    trial = sets.index(min(sets))
    browser.evaluate(f"(() => {{ const i = document.querySelector('#trials .panel input'); i.value = {trial}; i.dispatchEvent(new Event('change')); }})()")
    words = browser.evaluate("document.querySelector('#trials .panel code').textContent").split()
    listed = browser.evaluate("[...document.querySelectorAll('[data-set=\"All of its layers\"] li .link')].map((e) => e.textContent)")
    outcome = run(*words[1:], "--no-verify")
    assert outcome.code == 0, outcome
    typed = onnx.load(tmp_path / words[words.index("-o") + 1])
    types = {value.name: value.type.tensor_type.elem_type for value in onnx.shape_inference.infer_shapes(typed).graph.value_info}
    nodes = {node.name: node for node in typed.graph.node if node.op_type in ("Add", "Sub")}
    assert len(listed) == min(sets) and set(listed) <= set(nodes)
    for name in listed:
        assert types.get(nodes[name].input[0], TensorProto.FLOAT) == TensorProto.FLOAT


def test_keyboard(answer, opened, browser):
    large_answer(answer, layers=900, kept=12, trials=25)
    opened(answer)
    strip = "document.querySelector('.strip')"
    rows = [answer["names"].index(name) for name in kept_names(answer)]
    browser.evaluate(f"{strip}.focus()")
    at = lambda: browser.evaluate(f"Number({strip}.getAttribute('aria-valuenow'))")  # noqa: E731
    assert at() == rows[0]
    browser.press("n")
    assert at() == rows[1]
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    browser.press("p")
    assert at() == rows[1]
    browser.press("End")
    assert at() == 899
    browser.press("+")
    browser.press("p")
    assert at() == rows[-1]
    assert answer["names"][rows[-1]] in browser.evaluate(f"{strip}.getAttribute('aria-valuetext')")
    browser.press("Enter")
    name = answer["names"][rows[-1]]
    assert browser.evaluate("document.querySelector('#layers tr.current .name').textContent") == name
    assert browser.evaluate("document.querySelector('#graph [aria-current]').getAttribute('aria-label')").startswith(name)
    browser.evaluate("document.querySelector('.plot').focus()")
    browser.press("Home")
    least = min(answers.expand_trials(answer["trials"], answer["names"]), key=lambda trial: trial["time_us"])["time_us"]
    chosen = browser.evaluate("Number(document.querySelector('.plot').getAttribute('aria-valuenow'))")
    assert answer["trials"][chosen]["cost"][1] == least
    # Everything that is worked with can be reached by Tab, and has a name.
    browser.evaluate("document.activeElement.blur(); getSelection().collapse(document.body, 0)")
    seen = []
    for _ in range(80):
        browser.press("Tab")
        seen.append(browser.evaluate("(() => { const e = document.activeElement; return [e.className.baseVal ?? e.className, e.ariaLabel || e.textContent || e.labels?.[0]?.textContent || '']; })()"))
    reached = " ".join(classes for classes, _ in seen)
    assert all(each in reached for each in ("strip", "more", "node", "plot", "copy")) and all(text for _, text in seen[:-1])


def test_graph_of_the_neighborhood(answer, opened, browser):
    large_answer(answer, layers=400, kept=9, trials=5)
    opened(answer)
    inputs = answer["network"]["inputs"]
    center = answer["names"].index(answer["layers"][4]["name"])
    browser.evaluate("[...document.querySelectorAll('#layers tbody .more')][4].click()")

    def expected(steps):
        found = set()
        for edges in (inputs, [[i for i, row in enumerate(inputs) if at in row] for at in range(len(inputs))]):
            ring = {center}
            for _ in range(steps):
                ring = {each for row in ring for each in edges[row]}
                found |= ring
        return found | {center}

    nodes = "new Set([...document.querySelectorAll('#graph .node')].map((e) => Number(e.dataset.row)))"
    assert set(browser.evaluate(f"[...{nodes}]")) == expected(2)
    choose(browser, "Steps", "4", "graph")
    shown = set(browser.evaluate(f"[...{nodes}]"))
    assert shown == expected(4)
    links = sum(each in shown for row in shown for each in inputs[row])
    assert browser.evaluate("document.querySelectorAll('#graph path.link').length") == links
    scale = "Number(document.querySelector('#graph svg > g').getAttribute('transform').match(/scale\\((.*)\\)/)[1])"
    before = browser.evaluate(scale)
    browser.evaluate("document.querySelector('#graph [aria-current]').focus()")
    browser.press("+")
    assert browser.evaluate(scale) == pytest.approx(before * 1.25)
    browser.press("ArrowRight")
    focused = browser.evaluate("Number(document.activeElement.dataset.row)")
    assert focused != center and focused in shown
    browser.press("Enter")
    assert browser.evaluate("Number(document.querySelector('#graph [aria-current]').dataset.row)") == focused
    # No node covers another.
    assert browser.evaluate("""(() => {
        const boxes = [...document.querySelectorAll('#graph .node > rect:first-of-type')].map((e) => e.getBoundingClientRect());
        return boxes.some((a, i) => boxes.some((b, k) => k > i && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1));
    })()""") is False
    # By the mouse: the wheel after a click, and a drag.
    view = "document.querySelector('#graph svg > g').getAttribute('transform')"
    moved = browser.evaluate(view)
    box = browser.evaluate("(() => { const e = document.querySelector('#graph .graph'); e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect(); return [b.left + 20, b.bottom - 20]; })()")
    for kind, dx in (("mousePressed", 0), ("mouseMoved", 60), ("mouseReleased", 60)):
        browser.call("Input.dispatchMouseEvent", type=kind, x=box[0] + dx, y=box[1], button="left", buttons=1, clickCount=1)
    assert browser.evaluate(view) != moved
    assert browser.evaluate("Number(document.querySelector('#graph [aria-current]').dataset.row)") == focused


def plain(value):
    return value if value not in ("", None) else None


def test_exports_hold_what_the_answer_says(answer, opened, browser, tmp_path):
    large_answer(answer, layers=500, kept=33, trials=40)
    answer["layers"][2]["reason"]["text"] = 'says "no", twice,\nand "once" more'
    opened(answer)
    folder = tmp_path / "saved"
    folder.mkdir()
    saved = lambda place, kind: browser.download(f"#{place} [aria-label$='as {kind}']", folder).decode()  # noqa: E731
    rows = list(csv.DictReader(io.StringIO(saved("layers", "CSV"), newline="")))
    records = json.loads(saved("layers", "JSON"))
    assert len(rows) == len(records) == 33
    for row, record, layer in zip(rows, records, answer["layers"]):
        index = answer["names"].index(layer["name"])
        reason = layer["reason"]
        assert row["name"] == record["name"] == layer["name"] and row["op"] == layer["op"] and int(row["index"]) == index
        assert row["reason"] == reason["kind"] and row["text"] == record["text"] == reason["text"] and row["tensor"] == reason["tensor"]
        assert float(row["effect"]) == float(record["effect"]) == float(layer["effect"])
        assert float(row["share"]) == record["share"] == reason["share"] and int(row["count"]) == reason["count"]
        assert row["precision"] == "fp32" and plain(row["lowest"]) == answer["network"]["precision"][index]
        time = answer["network"]["time_us"]["fp32"][index]
        assert record["time_us"] == time and (row["time_us"] == "" if time is None else float(row["time_us"]) == time)
        low, high = answer["network"]["magnitudes"][index] or [None, None]
        assert record["smallest_exponent"] == low and plain(row["largest_exponent"]) == (None if high is None else str(high))
    # What the filters leave, in the order that is shown.
    choose(browser, "Show", "")
    choose(browser, "Operator", "Softmax")
    press_button(browser, "Effect")
    effects = {answer["names"][at]: float(effect) for at, effect in zip(answer["sensitivities"]["layer"], answer["sensitivities"]["effect"])}
    exported = [record["name"] for record in json.loads(saved("layers", "JSON"))]
    wanted = [name for name, op in zip(answer["names"], answer["network"]["op"]) if op == "Softmax"]
    assert sorted(exported) == sorted(wanted)
    shown = [effects[name] for name in exported if not math.isnan(effects[name])]
    assert shown == sorted(shown, reverse=True)
    trials = answers.expand_trials(answer["trials"], answer["names"])
    for record, row, trial in zip(json.loads(saved("trials", "JSON")), csv.DictReader(io.StringIO(saved("trials", "CSV"), newline="")), trials, strict=True):
        assert float(record["used"]) == float(row["used"]) == float(trial["error"]["used"]) and record["raised"] == len(trial["raised"])
        assert record["passed"] is trial["passed"] and record["kind"] == trial["kind"] and record["time_us"] == trial["time_us"]
        assert record["problem"] == row["problem"] == trial["error"]["problem"]


def test_two_answers(answer, opened, browser, tmp_path):
    large_answer(answer, layers=300, kept=40, trials=10)
    other = json.loads(json.dumps(answer))
    dropped, changed = other["layers"].pop(3), other["layers"][5]
    changed["precision"] = "tf32"
    added = {**json.loads(json.dumps(dropped)), "name": answer["names"][7]}
    other["layers"].insert(0, added)
    other["criterion"] = "another"
    (tmp_path / "b.json").write_text(json.dumps(other))
    page = opened(answer, "--compare", "b.json")
    assert "Their tolerances differ" in page and "different files of a model" not in page
    assert sorted(names(browser, "compare")) == sorted([dropped["name"], changed["name"], added["name"]])
    assert "B: b.json" in browser.evaluate("document.querySelector('.facing').textContent")
    kinds = browser.evaluate("Object.fromEntries([...document.querySelectorAll('#compare .rows tbody tr')].map((r) => [r.querySelector('.name').textContent, r.cells[3].textContent]))")
    assert kinds == {dropped["name"]: "only A", added["name"]: "only B", changed["name"]: "both"}
    choose(browser, "Show", "only B", "compare")
    assert names(browser, "compare") == [added["name"]]
    opened(answer, "--compare", "shown.json")
    assert "None: both keep the same layers" in browser.evaluate("document.querySelector('#compare').textContent")


def test_casts(answer, opened, browser, run, model, tmp_path):
    assert run("convert", model, "--answer", "a.json", "-o", "typed.onnx").code == 0
    opened(answer, "--typed", "typed.onnx")
    casts = [node.name for node in onnx.load(tmp_path / "typed.onnx").graph.node if node.op_type == "Cast"]
    assert names(browser, "casts") == casts[:5] and status(browser, "casts").endswith(f"of {len(casts)} casts")
    assert "the input x" in browser.evaluate("document.querySelector('#casts').textContent")


def test_names_are_no_markup(answer, opened, browser):
    for layer in answer["layers"]:
        layer["nodes"] = [EVIL]
        layer["reason"].update(tensor=EVIL, text=EVIL)
    answer["names"] = [EVIL if name == answer["layers"][0]["name"] else name for name in answer["names"]]
    answer["layers"][0]["name"] = answer["layers"][0]["op"] = EVIL
    answer["network"]["op"] = answer["sensitivities"]["op"] = [EVIL] * len(answer["network"]["op"])
    answer["sensitivities"]["op"] = [EVIL] * len(answer["sensitivities"]["layer"])
    answer["model"]["path"] = answer["message"] = answer["target"] = answer["criterion"] = EVIL
    page = opened(answer)
    assert EVIL not in page and data_of(page)["answers"][0]["answer"]["layers"][0]["name"] == EVIL
    browser.evaluate("document.querySelectorAll('.more').forEach((e) => e.click())")
    browser.evaluate("(() => { const i = document.querySelector('#trials .panel input'); i.value = 1; i.dispatchEvent(new Event('change')); })()")
    choose(browser, "Show", "")
    assert EVIL in browser.evaluate("document.querySelector('#layers').textContent")
    assert browser.evaluate("window.hacked") is None and browser.evaluate("document.images.length") == 0


def test_answers_without_network_sensitivities_or_result(answer, opened, browser):
    without = {key: value for key, value in answer.items() if key != "network"}
    opened(without)
    assert names(browser) == kept_names(answer)
    assert "does not say what its layers read" in browser.evaluate("document.querySelector('#graph').textContent")
    without.update(verdict="unverified", message="Stopped", layers=[], following=[], trials=[], held_out=None, sets={}, curve=[],
                   sensitivities={"layer": [], "op": [], "effect": [], "measured": []})
    without["search"] = {**without["search"], "outputs": []}
    opened(without)
    assert browser.evaluate("document.querySelector('#layers').hidden") and "No trial was finished" in browser.evaluate("document.body.textContent")


def test_copies_a_command(answer, opened, browser):
    opened(answer)
    said = """new Promise((done) => {
        const button = document.querySelector('.command .copy'), before = button.textContent;
        const everything = {childList: true, characterData: true, subtree: true};
        new MutationObserver(() => done(button.textContent)).observe(button, everything);
        button.click();
    })"""
    assert browser.evaluate(said) in ("Copied", "Press Ctrl-C")
