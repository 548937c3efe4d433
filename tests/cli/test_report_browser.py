"""The page of `ulpscope report` in a real browser: what people click, type, read, save and print."""
import base64
import csv
import io
import json
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from browser import Browser, find_browser
from cli_support import encode_array
from report_support import data_of, large_answer
from search_support import answers

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")

EVIL = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\"&amp;é"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def answer(run, model, tmp_path):
    """That of a search, as it is in the file."""
    iterations = [{"x": np.random.default_rng(i).uniform(1, 2, (1, 1, 256, 256)).astype(np.float32)} for i in range(4)]
    (tmp_path / "in.json").write_text(json.dumps([{name: encode_array(a) for name, a in each.items()} for each in iterations]))
    outcome = run("precision", "search", model, "--objective", "smallest", "--load-inputs", "in.json", "--fp16", "--fusion", "none",
                  "--atol", "1e-3", "--rtol", "1e-2", "--save-answer", "a.json")
    assert outcome.code == 0, outcome
    return json.loads((tmp_path / "a.json").read_text())


@pytest.fixture
def opened(run, browser, tmp_path):
    """Opens the page of an answer; returns the text of the page."""

    def call(answer, *words, width=1280, dark=False, height=900):
        (tmp_path / "shown.json").write_text(json.dumps(answer))
        outcome = run("report", "shown.json", "-o", "r.html", *words)
        assert outcome.code == 0, outcome
        browser.look_like(width, height, dark=dark, touch=width < 600)
        browser.open(tmp_path / "r.html")
        browser.settle()
        return (tmp_path / "r.html").read_text(encoding="utf-8")

    yield call
    # Pixels are read back by these tests alone.
    assert [message for message in browser.messages if "getImageData" not in message[1]] == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def names(browser, place="layers"):
    return browser.evaluate(f"[...document.querySelectorAll('#{place} tbody tr:not(.detail) .name')].map((e) => e.textContent)")


def status(browser, place="layers"):
    return browser.evaluate(f"document.querySelector('#{place} .status').textContent")


def choose(browser, label, value, place="layers"):
    browser.evaluate(f"""(() => {{
        const field = [...document.querySelectorAll('#{place} .field')].find((e) => e.firstChild.textContent === {json.dumps(label)});
        const input = field.querySelector('select, input');
        input.value = {json.dumps(value)};
        input.dispatchEvent(new Event(input.tagName === 'SELECT' ? 'change' : 'input'));
    }})()""")


def kept_names(answer):
    return [layer["name"] for layer in answer["layers"]]


def press_button(browser, text, place="layers"):
    browser.evaluate(f"[...document.querySelectorAll('#{place} button')].find((e) => e.textContent.includes({json.dumps(text)})).click()")


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


def test_the_cursor_leaves_the_titles_of_lanes_legible(answer, opened, browser):
    opened(answer)
    drawn = browser.evaluate("""(() => {
        const kind = CanvasRenderingContext2D.prototype, {fillRect, fillText} = kind, lines = [], titles = [];
        kind.fillRect = (x, y, width, height) => { if (width === 1.5) lines.push([y, y + height]); };
        kind.fillText = function(text, x, y) { if (this.textAlign === 'left') titles.push(y); };
        document.querySelector('.strip').focus();
        document.querySelector('.strip').dispatchEvent(new KeyboardEvent('keydown', {key: 'Home'}));
        Object.assign(kind, {fillRect, fillText});
        return [lines, titles];
    })()""")
    lines, titles = drawn
    assert len(lines) == len(titles) >= 3
    assert not [(line, title) for line in lines for title in titles if line[0] < title + 2 and line[1] > title - 9]


def test_times_that_are_nearly_the_same_stay_near_each_other(answer, opened, browser):
    large_answer(answer, layers=40, kept=3, trials=6)
    for number, trial in enumerate(answer["trials"]):
        trial["cost"][1] = 580.073 + number * 1e-5
    answer["time_us"]["answer"] = 580.07302
    answer["curve"] = []
    opened(answer)
    ticks, places = browser.evaluate("""(() => {
        const ticks = [...document.querySelectorAll('.plot text.tick')].map((e) => e.textContent);
        const places = [...document.querySelectorAll('.plot .trial')].map((e) => e.getBBox()).map((b) => b.x);
        return [ticks.filter((text) => /^\\d/.test(text)), places];
    })()""")
    assert any(tick.startswith("58") for tick in ticks) and len(set(ticks)) == len(ticks), ticks
    assert max(places) - min(places) < 4, places


def test_wide_names_leave_the_count_of_hidden_neighbors_legible(answer, opened, browser):
    large_answer(answer, layers=60, kept=5, trials=3)
    for number, name in enumerate(answer["names"]):
        answer["names"][number] = f"{'WM' * 14}{number}"
        for layer in answer["layers"]:
            if layer["name"] == name:
                layer["name"] = answer["names"][number]
    opened(answer)
    choose(browser, "Steps", "1", "graph")
    gaps = browser.evaluate("""[...document.querySelectorAll('#graph .node')].map((node) => {
        const [label, count] = ['.label', '.type:last-child'].map((e) => node.querySelector(e)?.getBBox());
        return count && node.lastChild.textContent.startsWith('+') ? count.x - label.x - label.width : null;
    }).filter((gap) => gap !== null)""")
    assert gaps and min(gaps) > 0, gaps


def test_long_names_take_two_lines_until_their_row_is_open(answer, opened, browser):
    long = ";".join(f"model/block_{i}/conv2d_{i}/BiasAdd" for i in range(12))
    answer["names"][answer["names"].index(answer["layers"][0]["name"])] = long
    answer["layers"][0]["name"] = long
    opened(answer)
    name = "document.querySelector('#layers tbody .name')"
    lines = f"Math.round({name}.clientHeight / parseFloat(getComputedStyle({name}).lineHeight))"
    assert browser.evaluate(f"[{name}.textContent, {name}.title]") == [long, long]
    assert browser.evaluate(lines) == 2
    browser.evaluate("document.querySelector('#layers tbody .more').click()")
    assert browser.evaluate(f"{name}.getBoundingClientRect().height") > 50


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


@pytest.mark.parametrize("width, dark, kept", [(1280, False, 60), (1280, True, 5000), (390, True, 60), (390, False, 5000)])
def test_thousands_of_layers_and_trials(width, dark, kept, answer, opened, browser, tmp_path):
    large_answer(answer, layers=5000, kept=kept, trials=1000)
    page = opened(answer, width=width, dark=dark)
    assert len(page.encode()) < 2_000_000
    assert browser.evaluate("document.documentElement.scrollHeight") <= 4000
    # Nothing sticks out, of the window or of its box.
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("[...document.querySelectorAll('main *')].filter((n) => !n.closest('svg, pre') && n.getBoundingClientRect().width && "
                            f"n.getBoundingClientRect().right > {width}).map((n) => n.outerHTML.slice(0, 80))") == []
    assert (browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 247, 249)") is not dark
    assert browser.evaluate("document.querySelectorAll('.plot .trial').length") == 1000
    assert "of 5,000" in browser.evaluate("(() => { const s = document.querySelector('#layers select'); s.value = ''; s.dispatchEvent(new Event('change')); return document.querySelector('#layers .status').textContent; })()")
    # The strip is painted in every lane.
    colors = browser.evaluate("""(() => {
        const canvas = document.querySelector('.strip'), context = canvas.getContext('2d');
        const scale = canvas.height / canvas.clientHeight, found = [];
        for (let y = 0; y < canvas.height; y += Math.round(8 * scale)) {
            const row = context.getImageData(60 * scale, y, canvas.width - 80 * scale, 1).data;
            found.push(row.some((value) => value > 0));
        }
        return found;
    })()""")
    assert sum(colors) > 0.6 * len(colors)
    # Words can be read: at least 4.5 : 1 between ink and its ground.
    ratio = browser.evaluate("""(() => {
        const light = (c) => c.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = light(getComputedStyle(document.querySelector('section')).backgroundColor);
        return Math.min(...['h2', '.about', '.name', '.kind', '.status'].map((s) => light(getComputedStyle(document.querySelector(s)).color)).map((l) => (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05)));
    })()""")
    assert ratio >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_a_mixture_of_formats_is_told_apart_over_depth(dark, answer, opened, browser):
    formats = ["nvfp4", "int4", "mxfp8", "fp8", "fp16"]
    large_answer(answer, layers=60, kept=1, trials=1)
    answer["network"]["precision"] = [formats[i // 12] for i in range(60)]
    opened(answer, dark=dark)
    legend = browser.evaluate("[...document.querySelectorAll('.legend span')].map((each) => each.textContent)")
    assert {*formats, "fp32"} <= {*legend} and "int8" not in legend
    # At the foot of the lane, in the middle of each run of one format; and how tall it is there.
    runs = browser.evaluate("""(() => {
        const canvas = document.querySelector('.strip'), context = canvas.getContext('2d');
        const scale = canvas.height / canvas.clientHeight, inner = canvas.clientWidth - 54;
        const at = (x, y) => [...context.getImageData(x * scale, y * scale, 1, 1).data].join();
        return [0, 1, 2, 3, 4].flatMap((run) => [3.5, 5.5, 7.5].map((row) => {
            const x = 46 + inner * (12 * run + row) / 60, color = at(x, 54);
            let tall = 0;
            while (tall < 36 && at(x, 54 - tall) === color) ++tall;
            return [color, tall];
        }));
    })()""")
    usual = [max(map(tuple, runs[3 * i : 3 * i + 3]), key=runs.count) for i in range(5)]
    assert len({color for color, _ in usual}) == 5
    assert sorted(tall for _, tall in usual) == sorted({tall for _, tall in usual})


def test_print_is_light_with_all_rows_and_no_controls(answer, opened, browser):
    large_answer(answer, layers=200, kept=25, trials=10)
    opened(answer, dark=True)
    assert len(names(browser)) == 10
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert names(browser) == kept_names(answer)
    assert browser.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("[...document.querySelectorAll('details.folds')].every((e) => e.open)")
    assert browser.evaluate("[...document.querySelectorAll('.pager, .tools, .copy')].every((e) => getComputedStyle(e).display === 'none')")
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert len(names(browser)) == 10


def test_theme_may_change(answer, opened, browser):
    opened(answer)
    pixel = "[...document.querySelector('.strip').getContext('2d').getImageData(0, 0, document.querySelector('.strip').width, 60).data].join()"
    before = browser.evaluate(pixel)
    browser.look_like(1280, dark=True)
    browser.settle()
    assert browser.evaluate(pixel) != before


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
