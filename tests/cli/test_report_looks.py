"""How the page of `ulpscope report` looks in a real browser: widths, themes, long names, many rows, and paper."""

import base64

import pytest

from browser import find_browser
from report_support import choose, kept_names, large_answer, names

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium is installed")


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


@pytest.mark.parametrize(
    "width, dark, kept", [(1280, False, 60), (1280, True, 5000), (390, True, 60), (390, False, 5000)]
)
def test_thousands_of_layers_and_trials(width, dark, kept, answer, opened, browser, tmp_path):
    large_answer(answer, layers=5000, kept=kept, trials=1000)
    page = opened(answer, width=width, dark=dark)
    assert len(page.encode()) < 2_000_000
    assert browser.evaluate("document.documentElement.scrollHeight") <= 4000
    # Nothing sticks out, of the window or of its box.
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        browser.evaluate(
            "[...document.querySelectorAll('main *')].filter((n) => !n.closest('svg, pre') && "
            f"n.getBoundingClientRect().width && n.getBoundingClientRect().right > {width})"
            ".map((n) => n.outerHTML.slice(0, 80))"
        )
        == []
    )
    assert (browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(246, 247, 249)") is not dark
    assert browser.evaluate("document.querySelectorAll('.plot .trial').length") == 1000
    assert "of 5,000" in browser.evaluate(
        "(() => { const s = document.querySelector('#layers select'); s.value = ''; "
        "s.dispatchEvent(new Event('change')); return document.querySelector('#layers .status').textContent; })()"
    )
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
        const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        const light = (c) => c.match(/[\\d.]+/g).slice(0, 3).map((v) => linear(v / 255))
            .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
        const ground = light(getComputedStyle(document.querySelector('section')).backgroundColor);
        return Math.min(...['h2', '.about', '.name', '.kind', '.status']
            .map((s) => light(getComputedStyle(document.querySelector(s)).color))
            .map((l) => (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05)));
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
    assert (
        browser.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor") == "rgb(255, 255, 255)"
    )
    assert browser.evaluate("[...document.querySelectorAll('details.folds')].every((e) => e.open)")
    assert browser.evaluate(
        "[...document.querySelectorAll('.pager, .tools, .copy')].every((e) => getComputedStyle(e).display === 'none')"
    )
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert len(names(browser)) == 10


def test_theme_may_change(answer, opened, browser):
    opened(answer)
    strip = "document.querySelector('.strip')"
    pixel = f"[...{strip}.getContext('2d').getImageData(0, 0, {strip}.width, 60).data].join()"
    before = browser.evaluate(pixel)
    browser.look_like(1280, dark=True)
    browser.settle()
    assert browser.evaluate(pixel) != before
