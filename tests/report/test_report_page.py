"""The report's page in a real browser, narrow and wide, light and dark."""

import importlib.util
import json
import re
import shutil
import threading

import pytest
from report_helpers import rows_of, write_run

from homing.report.build import write_report
from homing.report.live import Live
from homing.report.server import HOST, make_server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="needs chromium and playwright"
)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        made = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield made
        made.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two agents on two environments, and one agent of which there are twenty variants."""
    root = tmp_path_factory.mktemp("runs")
    for env in ("ant", "reacher"):
        write_run(root / f"crl-{env}", "crl", env, range(4), top=0.9)
        write_run(root / f"sac-{env}", "sac", env, range(4), top=0.4)
    for k in range(20):
        write_run(root / f"td3-{k}", "td3", "ant", (0, 1), top=0.3, changes={"train.batch_size": k + 1})
    (write_run(root / "broken", seeds=(9,)) / "metrics.jsonl").write_text("?\n")
    page = root / "report.html"
    write_report([root], page)
    return page


@pytest.mark.parametrize(("width", "scheme"), [(380, "dark"), (1400, "light")])
def test_the_page_draws_itself_without_errors_or_outside_requests(browser, report, width, scheme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    page.wait_for_selector("#curves svg path")
    headings = page.locator("h2").all_text_contents()
    assert headings[:4] == [
        "Learning curves", "Final performance", "Agents compared", "Training diagnostics",
    ]  # fmt: skip
    assert not errors and asked == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "broken" in page.locator(".note").inner_text()
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    dark = sum(map(int, background[4:-1].split(","))) < 200
    assert dark == (scheme == "dark")
    page.close()


def test_the_reader_chooses_what_is_drawn(browser, report):
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(report.as_uri())
    page.wait_for_selector("#curves svg path")
    lines = page.locator("#curves .canvas").first.locator("path")
    before = lines.count()
    page.get_by_role("button", name="every seed").click()
    lines.nth(before).wait_for(state="attached")
    page.get_by_role("button", name="wall-clock").click()
    page.locator("#curves text", has_text="wall-clock seconds").first.wait_for()
    page.get_by_role("button", name="none", exact=True).click()
    expect(page.locator("#curves .canvas path")).to_have_count(0)
    page.get_by_placeholder("find a line").fill("sac")
    page.locator(".legend button").click()
    page.wait_for_selector("#curves svg path")
    assert page.locator(".legend button").count() == 1
    chart = page.locator("#curves .canvas").first
    chart.hover()
    assert "sac" in page.locator("#tip").inner_text()
    box = chart.locator("path").last.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 2)  # where the line of the best seed ends
    assert re.search(r"seed \d of sac-", page.locator("#tip").inner_text())
    page.locator("#final th", has_text="success rate").click()
    first = page.locator("#final tbody tr").first.inner_text()
    assert "crl" in first  # the best comes first
    page.close()


def test_a_live_page_grows_keeps_what_was_chosen_and_says_when_it_is_alone(browser, tmp_path):
    from playwright.sync_api import expect

    run = write_run(tmp_path / "run", seeds=(0,), finished=False)
    rows = [json.dumps(row) + "\n" for row in rows_of((0,))]
    (run / "metrics.jsonl").write_text("".join(rows[:2]))
    server = make_server(Live([tmp_path]), 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        page = browser.new_page(viewport={"width": 900, "height": 800})
        page.goto(f"http://{HOST}:{server.server_address[1]}/")
        expect(page.locator(".facts")).to_contain_text("20k steps in all")
        page.get_by_role("button", name="wall-clock").click()
        with open(run / "metrics.jsonl", "a") as file:
            file.writelines(rows[2:])
        expect(page.locator(".facts")).to_contain_text("60k steps in all", timeout=15_000)
        expect(page.locator("#curves text", has_text="wall-clock").first).to_be_visible()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    expect(page.locator("#live")).to_contain_text("connection lost", timeout=15_000)
    page.close()


def test_the_page_has_means_over_seeds_for_each_goal():
    import numpy as np

    from homing.report.content import _by_goal
    from homing.report.groups import Curve, Group

    def curve(seed, near, diverged=False):
        table = {"x": [0.0, 4.0], "y": [0.0, 4.0], "episodes": [3, 0], "time_near_goal": near}
        return Curve("run", seed, diverged, np.zeros(1), np.zeros(1), {}, table)

    curves = [curve(0, [0.2, None]), curve(1, [0.4, None]), curve(2, [0.9, 0.9], diverged=True)]
    means = _by_goal(Group("crl", "maze", curves))
    assert means["time_near_goal"] == [pytest.approx(0.3), None]
    assert means["x"] == [0.0, 4.0]
    assert _by_goal(Group("crl", "maze", [Curve("run", 0, False, np.zeros(1), np.zeros(1), {})])) is None


@pytest.fixture
def page(browser, report):
    made = browser.new_page(viewport={"width": 1000, "height": 700})
    made.goto(report.as_uri())
    made.wait_for_selector("#compare svg path")
    yield made
    made.close()


def test_no_text_of_a_chart_is_cut(page):
    """Ticks such as 100 % at the right end, and names of lines at the left, stay inside of the drawing."""
    outside = page.evaluate(
        """() => [...document.querySelectorAll('svg.chart')].flatMap((board) => {
            const box = board.getBoundingClientRect();
            return [...board.querySelectorAll('text')].filter((t) => {
                const b = t.getBoundingClientRect();
                return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1;
            }).map((t) => t.textContent);
        })"""
    )
    assert page.locator("#compare text", has_text="100 %").count() >= 2
    assert outside == []


def test_charts_are_reached_by_keyboard(page):
    from playwright.sync_api import expect

    chart, say = page.locator("#curves svg.chart").first, page.locator("#say")
    assert "arrow keys move" in (chart.get_attribute("aria-label") or "")
    chart.focus()
    page.keyboard.press("End")
    expect(say).to_contain_text("crl, 60k steps")
    page.keyboard.press("ArrowLeft")
    expect(say).to_contain_text("crl, 50k steps")
    expect(chart.locator(".at")).to_have_attribute("visibility", "visible")
    expect(page.locator("#tip")).to_contain_text("50k steps")
    page.keyboard.press("ArrowDown")
    expect(say).to_contain_text("sac, 50k steps")
    page.keyboard.press("Home")
    expect(say).to_contain_text("sac, 10k steps")
    page.keyboard.press("Escape")
    expect(page.locator("#tip")).to_be_hidden()
    dots = page.locator("#compare svg.chart").first
    dots.focus()
    page.keyboard.press("ArrowDown")
    expect(say).to_contain_text("95 % interval")


def test_a_redrawn_page_keeps_the_chart_that_has_the_focus(page):
    from playwright.sync_api import expect

    page.locator("#curves svg.chart").nth(1).focus()
    page.keyboard.press("Home")
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.evaluate("draw()")
    page.wait_for_function("document.activeElement.matches('svg.chart')")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label
    page.keyboard.press("ArrowRight")
    expect(page.locator("#say")).to_contain_text("20k steps")


@pytest.mark.parametrize("kind", ["PNG", "SVG", "CSV"])
def test_charts_are_saved_as_files(page, tmp_path, kind):
    with page.expect_download() as download:
        page.locator("#curves .save button", has_text=kind).first.click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == f"success-rate-on-ant.{kind.lower()}"
    if kind == "PNG":
        from PIL import Image

        colours = Image.open(file).convert("RGB").getcolors(1 << 20) or []
        assert len(colours) > 20 and max(count for count, _ in colours) > 1000
    elif kind == "SVG":
        drawing = file.read_text()
        assert "success rate on ant" in drawing and ">crl<" in drawing and "var(" not in drawing
    else:
        head, first, *_ = file.read_text().splitlines()
        assert head == "line,step,value,low,high,seeds"
        assert first.startswith("crl,10000,0.") and first.endswith(",4")


def test_intervals_of_few_seeds_have_their_caveat(browser, page, tmp_path):
    assert "† Fewer than five seeds" in page.locator("#final").inner_text()
    assert "are too narrow" in page.locator("#curves").inner_text()
    write_run(tmp_path / "run", seeds=range(5))
    write_report([tmp_path], tmp_path / "five.html")
    five = browser.new_page()
    five.goto((tmp_path / "five.html").as_uri())
    five.wait_for_selector("#curves svg path")
    assert "†" not in five.locator("#final").inner_text()
    assert "too narrow" not in five.locator("#curves").inner_text()
    five.close()


def test_one_seed_alone_has_no_statistics(browser, page, tmp_path):
    write_run(tmp_path / "run", seeds=(0,))
    write_report([tmp_path], tmp_path / "one.html")
    one = browser.new_page()
    one.goto((tmp_path / "one.html").as_uri())
    one.wait_for_selector("#curves svg path")
    assert one.locator("#compare").count() == 0 and page.locator("#compare").count() == 1
    assert "worst … best seed" not in one.locator("#final th").all_inner_texts()
    assert "worst … best seed" in page.locator("#final th").all_inner_texts()
    one.close()


def test_a_long_hover_text_stays_in_the_window(page):
    page.evaluate(
        """() => {
            const row = { colour: 'red', name: 'x'.repeat(900), value: '1 %', range: '0 % … 2 %' };
            tell({ clientX: 900, clientY: 600 }, 'head', Array(12).fill(row), 3);
        }"""
    )
    box = page.locator("#tip").bounding_box()
    assert box is not None
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1000
    assert box["y"] >= 0 and box["y"] + box["height"] <= 700
    assert re.search(r"and \d+ more", page.locator("#tip").inner_text())


def test_ticks_have_the_digits_of_their_steps(page):
    tell = lambda values, fraction: page.evaluate(
        "([values, fraction]) => amounts(values, { fraction })", [values, fraction]
    )
    assert tell([5.375, 5.4, 5.425, 5.45], False) == ["5.375", "5.4", "5.425", "5.45"]
    assert tell([0, 0.025, 0.05, 0.075, 0.1, 0.125], True)[-2:] == ["10 %", "12.5 %"]
    assert tell([0, 0.2, 0.4, 0.6, 0.8, 1], True) == ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
    assert tell([1.0, 2.0], False) == ["1", "2"] and tell([7], False) == ["7"]
    assert tell([1e6, 1.0025e6], False) == ["1M", "1.0025M"]


def test_settings_are_those_of_the_lines(page):
    """Variants too many to name are numbered; the table of settings says which is which."""
    headings = page.locator("#settings th").all_inner_texts()
    assert headings[:2] == ["run", "agent"]
    assert page.locator("#settings tbody tr", has_text="crl").count() >= 2
