"""The page of `bootdqn report` in a real browser: offline, readable, and deaf to what names and values say."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from bootdqn.report import serve
from bootdqn.report.page import Report
from bootdqn.watch.video import write_video
from test_report import HOSTILE, by_steps, compiled, serving

pytestmark = pytest.mark.browser
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ATTACK = HOSTILE.replace("alert(1)", "window.hit=1").replace("alert('1')", "window.hit=1")


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium: `make browser` installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens the page of `tmp_path`/runs from its file; no errors and no requests may come of it."""
    problems, pages = [], []

    def open_(**options):
        out = tmp_path / "report.html"
        out.write_text(Report([tmp_path / "runs"]).page())
        page = browser.new_page(**options)
        pages.append(page)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: _note_request(request.url, out, problems))
        page.goto(out.as_uri())
        return page

    yield open_
    for page in pages:
        page.close()
    assert problems == []


def _note_request(url, out, problems):
    if url != out.as_uri() and not url.startswith("data:"):
        problems.append(f"request of {url}")


def names(page):
    return page.locator("#summary tbody th").all_text_contents()


def test_the_table_sorts_both_ways_and_by_keyboard(open_page, tmp_path):
    compiled(tmp_path / "runs/a", {0: [9.0]})
    compiled(tmp_path / "runs/b", {0: [10.0]}, record={"episodes_to_learn": {"0": 5}})
    compiled(tmp_path / "runs/c", {0: [-2.0]}, record={"episodes_to_learn": {"0": 40}})
    page = open_page()
    late = page.get_by_role("columnheader", name="Late return")
    late.get_by_role("button").click()
    assert names(page) == ["c", "a", "b"]  # as text, 10 would come before 9
    assert late.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert names(page) == ["b", "a", "c"]
    assert late.get_attribute("aria-sort") == "descending"
    learned = page.get_by_role("columnheader", name="Episodes to learn").get_by_role("button")
    learned.click()
    assert names(page) == ["b", "c", "a"]
    assert late.get_attribute("aria-sort") == "none"
    learned.click()
    assert names(page) == ["c", "b", "a"]  # what is not known stays last


def move_to(page, episode, last):
    """Put the mouse over an episode of the only chart, whose axis goes from 0 to `last`."""
    chart = page.locator(".chart > svg")
    chart.scroll_into_view_if_needed()
    left, _, right, _ = json.loads(page.locator(".chart script").text_content())["box"]
    area = chart.bounding_box()
    width = chart.evaluate("svg => svg.viewBox.baseVal.width")
    x = (left + (right - left) * episode / last) / width * area["width"]
    page.mouse.move(area["x"] + x, area["y"] + area["height"] / 2)


def test_a_curve_shows_its_values_by_mouse_and_by_keyboard(open_page, tmp_path):
    compiled(tmp_path / "runs/a", {0: [0.0, 2.0, 4.0], 1: [2.0, 4.0, 6.0]})
    compiled(tmp_path / "runs/b", {0: [1000.0, 3000.0]}, agent_name="dqn")
    page = open_page()
    values = page.locator(".legend output")
    assert page.locator(".at").text_content() == "At the end"
    assert values.all_text_contents() == ["3 (2 to 4, 2 seeds)", "2,000 (1 seed)"]
    move_to(page, 2, 3)
    assert page.locator(".at").text_content() == "At episode 2"
    assert values.all_text_contents() == ["2 (1 to 3, 2 seeds)", "2,000 (1 seed)"]
    assert page.locator(".cursor circle").count() == 2
    page.mouse.move(1, 1)
    assert page.locator(".at").text_content() == "At the end"
    chart = page.locator(".chart > svg")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert values.all_text_contents() == ["1 (0 to 2, 2 seeds)", "1,000 (1 seed)"]
    assert chart.get_attribute("aria-valuenow") == "1"
    assert chart.get_attribute("aria-valuetext") == "episode 1: boot 1 (0 to 2, 2 seeds); dqn 1,000 (1 seed)"
    page.keyboard.press("End")
    assert values.all_text_contents() == ["3 (2 to 4, 2 seeds)", ""]  # dqn did not get there


def test_a_curve_shows_its_values_by_touch(open_page, tmp_path):
    compiled(tmp_path / "runs/a", {0: [0.0, 2.0, 4.0]})
    page = open_page(has_touch=True, viewport={"width": 390, "height": 800})
    page.locator(".chart > svg").scroll_into_view_if_needed()
    area = page.locator(".chart > svg").bounding_box()
    page.touchscreen.tap(area["x"] + area["width"] * 0.12, area["y"] + area["height"] / 2)
    assert page.locator(".at").text_content() == "At episode 1"
    assert page.locator(".legend output").text_content() == "0 (1 seed)"


def test_a_link_unfolds_its_run(open_page, tmp_path):
    for name in "abcd":
        compiled(tmp_path / f"runs/{name}", {0: [1.0]})
    page = open_page()
    runs = page.locator("details.run")
    assert [run.get_attribute("open") is not None for run in runs.all()] == [True, True, False, False]
    page.get_by_role("link", name="d", exact=True).click()
    page.wait_for_function("document.querySelectorAll('details.run')[3].open")  # it may take a moment
    assert runs.nth(3).locator("summary").first.is_visible()


def test_a_video_plays(open_page, tmp_path):
    path = compiled(tmp_path / "runs/a", {0: [1.0]})
    frames = [Image.new("RGB", (32, 32), (12 * shade,) * 3) for shade in range(20)]
    write_video(path / "episode.mp4", frames, fps=10)
    page = open_page()
    video = page.locator("video")
    video.scroll_into_view_if_needed()
    video.evaluate("video => video.play()")
    reached = "video => new Promise(done => video.ontimeupdate = () => video.currentTime > 0.3 && done(true))"
    assert video.evaluate(reached)
    assert video.evaluate("video => [video.videoWidth, video.duration]") == [32, 2]


@pytest.mark.parametrize("bypass_csp", [False, True])  # escaping must do without the policy
def test_no_name_and_no_value_runs_as_script(open_page, tmp_path, bypass_csp):
    record = dict.fromkeys(("status", "command", "error", "git_revision", "python"), ATTACK)
    names_ = {"env": ATTACK, "agent_name": ATTACK}
    hostile_name = 'a"><img src=x onerror=window.hit=1>'
    path = compiled(tmp_path / "runs" / hostile_name, {0: [1.0]}, agent={ATTACK: ATTACK}, record=record, **names_)
    by_steps(tmp_path / "runs/b", [(1, 1)], agent={"num_heads": 2, ATTACK: ATTACK}, env=ATTACK, agent_name=ATTACK)
    card = {"seed": ATTACK, "observations": ATTACK, "policies": [{"policy": ATTACK}], "warning": ATTACK}
    (path / "heads.json").write_text(json.dumps({"cards": [card]}))
    (path / "metrics.csv").write_text((path / "metrics.csv").read_text() + f"{ATTACK}\n")
    (path / "learning_curve.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" onload="top.hit=1"><script>top.hit=1</script></svg>'
    )
    experiment = tmp_path / "runs/e"
    experiment.mkdir()
    (experiment / "sweep.json").write_text(json.dumps({"experiment": ATTACK, "preset": ATTACK}))
    (experiment / "summary.md").write_text(f"# {ATTACK}\n\n| {ATTACK} |\n|---|\n| {ATTACK} |\n")
    page = open_page(bypass_csp=bypass_csp)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    for button in page.locator("#summary button").all():
        button.click()
    page.locator(".chart > svg").first.focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("window.hit") is None
    assert hostile_name in names(page)
    for where in (
        "#summary td >> nth=1",
        "figcaption >> nth=0",
        ".warning >> nth=0",
        "article td",
        "details.run pre >> nth=0",
    ):
        assert "window.hit=1" in page.locator(where).text_content()


def test_the_policy_stops_what_escaping_would_miss(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(Report([compiled(tmp_path / "run", {0: [1.0]})]).page())
    page = browser.new_page()
    page.goto(path.as_uri())
    broken = page.evaluate("""async () => {
        const broken = [];
        document.addEventListener("securitypolicyviolation", event => broken.push(event.effectiveDirective));
        document.body.insertAdjacentHTML("beforeend", "<img src=data:, onerror=window.hit=1>");
        await fetch("http://127.0.0.1:9/").catch(() => {});
        await new Promise(done => setTimeout(done, 100));
        return broken.sort();
    }""")
    assert broken == ["connect-src", "script-src-attr"]
    assert page.evaluate("window.hit") is None
    page.close()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_only_tables_scroll_sideways(open_page, tmp_path, width):
    path = compiled(tmp_path / f"runs/{'long-name-' * 12}", {0: [1.0]}, record={"command": "x" * 300})
    (path / "learning_curve.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="2000" height="10"/>')
    card = {
        "seed": 0,
        "observations": "all",
        "policies": [{"policy": f"head {i}", "mean_return": i} for i in range(40)],
    }
    correlation = np.eye(40).tolist()
    (path / "heads.json").write_text(json.dumps({"cards": [card | {"correlation": correlation}]}))
    (tmp_path / "runs/e").mkdir()
    (tmp_path / "runs/e/sweep.json").write_text("{}")
    row = "| wide cell " * 40
    (tmp_path / "runs/e/summary.md").write_text(f"{row}|\n{'|---' * 40}|\n{row}|\n")
    page = open_page(viewport={"width": width, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("article .scroll").last.evaluate("box => box.scrollWidth > box.clientWidth")


def test_dark_and_light_follow_the_reader(open_page, tmp_path):
    compiled(tmp_path / "runs/a", {0: [1.0]})
    light, dark = (
        open_page(color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    )
    assert light != dark


def test_a_served_page_follows_a_run_and_keeps_what_the_reader_set(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "_REST", 0)
    for name, value in zip("abcd", (3.0, 2.0, 1.0, 4.0), strict=True):
        compiled(tmp_path / name, {0: [value]})
    with serving(tmp_path) as port:
        page = browser.new_page(viewport={"width": 800, "height": 600})
        problems = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/")
        page.get_by_role("columnheader", name="Late return").get_by_role("button").click()
        page.locator("details.run summary").first.click()  # folds the first
        page.locator("details.run >> nth=2").locator("summary").first.click()  # unfolds the third
        page.evaluate("window.scrollTo({top: 700, behavior: 'instant'})")
        with (tmp_path / "c/metrics.csv").open("a") as file:
            file.write("0,2,0,101,0,0,0,0,0,0,0,0\n")
        page.get_by_text("2 of 3 episodes").wait_for(timeout=15_000)
        assert names(page) == ["b", "a", "d", "c"]  # its late return is now 51
        is_open = [run.get_attribute("open") is not None for run in page.locator("details.run").all()]
        assert is_open == [False, True, True, False]
        assert page.evaluate("window.scrollY") == 700
        assert page.evaluate("document.activeElement.parentElement.dataset.key") == "c"
        assert page.locator(".legend output").first.text_content() != ""
        page.close()
        assert problems == []
