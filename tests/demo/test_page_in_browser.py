"""The page in a real browser: its numbers are PyTorch's, and every control does what it says."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from aenp.data.gp import GibbsTasks
from aenp.demo.page import LINE, MAP, page
from aenp.demo.weights import facts, pack
from aenp.experiments.gp import oracles
from aenp.fixed_inputs import FixedInputs
from aenp.models.tnp import TNP
from aenp.process import NeuralProcess
from aenp.shipped import pretrained
from aenp.task import Task

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("needs Chromium", allow_module_level=True)

from selenium.webdriver import ActionChains, Chrome, ChromeOptions, Keys  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.remote.webelement import WebElement  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1100,1400"
)
KEYS = {"x": "xc", "y": "yc", "xt": "xt"}
PLAIN = "(value) => JSON.parse(JSON.stringify(value ?? null, (_, v) => (ArrayBuffer.isView(v) ? Array.from(v) : v)))"
WAIT = 120
"Seconds until a test gives up; nothing takes nearly as long."


class Visitor:
    """Someone who looks at the page and uses it."""

    def __init__(self, driver: Chrome, file: Path) -> None:
        self.driver = driver
        self.file = file

    def open(self) -> None:
        self.driver.get(self.file.as_uri())
        self.until(lambda: "Computed" in self.find("line-status").text)

    def find(self, name: str) -> WebElement:
        return self.driver.find_element(By.ID, name)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def until(self, condition: Any) -> None:
        WebDriverWait(self.driver, WAIT, poll_frequency=0.05).until(lambda _: condition())

    def get(self, expression: str, *arguments: Any) -> Any:
        """The value of an expression of the page, which may be a promise; its arguments are called a[0], a[1], …"""
        finish = f"then({PLAIN}).then(done, (error) => done(String(error)))"
        script = f"const [...a] = arguments; const done = a.pop(); Promise.resolve({expression}).{finish}"
        return self.driver.execute_async_script(script, *arguments)

    def click(self, name: str) -> None:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", self.find(name))
        self.find(name).click()

    def settle(self) -> None:
        """Waits until the page has drawn what it was last asked for."""
        self.get("(async () => { await updateLine(); await updateMap(); })()")

    def point_to(self, target: WebElement, x: float, y: float) -> ActionChains:
        """The pointer on its way to a place in an element, in pixels from its top left corner."""
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", target)
        box = target.rect
        return ActionChains(self.driver).move_to_element_with_offset(
            target, round(x - box["width"] / 2), round(y - box["height"] / 2)
        )

    def click_at(self, name: str, x: float, y: float) -> None:
        self.point_to(self.find(name), x, y).click().perform()
        self.settle()

    def touch(self, kind: str, *places: tuple[float, float]) -> None:
        """Fingers touch the screen, move or leave it: kind is touchStart, touchMove or touchEnd."""
        points = [{"x": x, "y": y} for x, y in places]
        self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def place(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """A place in an element on the screen, by shares of its width and height."""
        box = "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        share = "return [box.x + arguments[1] * box.width, box.y + arguments[2] * box.height]"
        left, top = self.driver.execute_script(f"{box} {share}", selector, x, y)
        return left, top

    def press(self, name: str) -> None:
        """Clicks a button and waits for what it does."""
        self.click(name)
        self.settle()

    def slide(self, name: str, value: float) -> None:
        """Sets a slider as if it were dragged."""
        events = "for (const name of ['input', 'change']) arguments[0].dispatchEvent(new Event(name))"
        self.driver.execute_script(f"arguments[0].value = arguments[1]; {events}", self.find(name), value)
        self.settle()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with Chrome(options, Service(str(DRIVER))) as driver:
        driver.set_script_timeout(WAIT)
        yield driver


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "demo.html"
    file.write_text(page(), encoding="utf-8")
    return file


@pytest.fixture
def visitor(driver: Chrome, file: Path) -> Iterator[Visitor]:
    visitor = Visitor(driver, file)
    visitor.open()
    yield visitor
    assert driver.get_log("browser") == []


def tasks_of(process: NeuralProcess) -> Iterator[Task]:
    """Contexts of 0 to 60 points around the middle of the domain, at its edge and far outside, some on a lattice."""
    assert process.fixed_inputs is not None
    domain = torch.tensor(process.fixed_inputs.domain, dtype=torch.float64)
    middle, side = domain.mean(dim=1), domain[:, 1] - domain[:, 0]
    generator = torch.Generator().manual_seed(0)
    for number, size in enumerate((0, 1, 2, 5, 17, 60)):
        for away in (0.0, 0.6, 20.0):
            xc, xt = (
                middle
                + side * (away + width * (torch.rand(1, count, process.dim_x, generator=generator).double() - 0.5))
                for width, count in ((0.8, size), (1.2, 48))
            )
            xc = (16 * xc).round() / 16 if number % 2 else xc
            yield Task(xc, torch.randn(1, size, 1, generator=generator).double(), xt)


@pytest.mark.parametrize("name", [*LINE, MAP])
def test_the_numbers_are_those_of_pytorch(name: str, visitor: Visitor) -> None:
    model = pretrained(name)
    process: NeuralProcess = getattr(model, "process", model)
    tasks = list(tasks_of(process))
    asked = [{key: getattr(task, of).flatten().tolist() for key, of in KEYS.items()} for task in tasks]
    answers = visitor.get("READY.then(() => Promise.all(a[1].map((task) => predictBoth(a[0], task))))", name, asked)
    assert_answered(process, tasks, answers)


def assert_answered(process: NeuralProcess, tasks: list[Task], answers: list[dict[str, Any]]) -> None:
    with torch.no_grad():
        for task, answer in zip(tasks, answers, strict=True):
            for ours, theirs in zip(process.symmetry_breaking(task), (answer["full"], answer["part"]), strict=True):
                np.testing.assert_allclose(theirs["mean"], ours.mean.flatten(), atol=1e-4, rtol=0)
                np.testing.assert_allclose(theirs["sd"], ours.stddev.flatten(), atol=1e-4, rtol=0)


def test_fixed_inputs_of_less_strength_are_those_of_pytorch(visitor: Visitor) -> None:
    torch.manual_seed(0)
    fixed = FixedInputs(1, domain=[(-2, 2)], fourier=2, strength=0.25)
    process = TNP(1, 1, attention="spectral", dim=16, heads=2, layers=1, fixed_inputs=fixed).eval()
    tasks = list(tasks_of(process))
    asked = [{key: getattr(task, of).flatten().tolist() for key, of in KEYS.items()} for task in tasks]
    visitor.settle()
    load = "Promise.all([0, 1].map((n) => ask('load', { facts: { model: JSON.parse(a[0]) }, weights: a[1] }, n)))"
    predict = "Promise.all(a[2].map((task) => predictBoth('model', task)))"
    answers = visitor.get(f"{load}.then(() => {predict})", json.dumps(facts(process)), pack([process]), asked)
    assert_answered(process, tasks, answers)


@pytest.mark.parametrize(("which", "oracle"), [("bayes", oracles.bayes), ("oracle", oracles.equivariant)])
@pytest.mark.parametrize("size", [0, 1, 12])
def test_the_oracles_are_those_of_the_experiment(which: str, oracle: Any, size: int, visitor: Visitor) -> None:
    generator = torch.Generator().manual_seed(size)
    xc, xt = (4 * torch.rand(1, count, 1, generator=generator).double() - 2 for count in (size, 20))
    yc, yt = (torch.randn(1, count, 1, generator=generator).double() for count in (size, 20))
    task = Task(xc, yc, xt)
    asked = {key: getattr(task, of).flatten().tolist() for key, of in KEYS.items()}
    request = {"which": which, "task": asked, "truth": yt.flatten().tolist()}
    answer = visitor.get("READY.then(() => ask('oracle', { source: SOURCE, ...a[0] }))", request)
    expected = oracle(GibbsTasks(), task)
    np.testing.assert_allclose(answer["mean"], expected.mean.flatten(), atol=1e-8)
    np.testing.assert_allclose(answer["sd"], expected.stddev.flatten(), atol=1e-8)
    np.testing.assert_allclose(answer["logDensities"], expected.log_prob(yt).flatten(), atol=1e-8)


def test_observations_are_added_moved_and_removed_by_pointer(visitor: Visitor) -> None:
    visitor.press("line-clear")
    assert visitor.get("line.points") == []
    visitor.click_at("line-plot", 300, 120)
    visitor.click_at("line-plot", 700, 200)
    first, second = visitor.get("line.points")
    assert first["x"] == pytest.approx(visitor.get("layout().toX(300)"), abs=0.02)
    assert first["y"] == pytest.approx(visitor.get("layout().toY(120)"), abs=0.03)
    markers = visitor.all("#line-plot .point")
    ActionChains(visitor.driver).drag_and_drop_by_offset(markers[1], -100, 50).perform()
    visitor.settle()
    moved = visitor.get("line.points")[1]
    assert moved["x"] < second["x"] - 0.5 and moved["y"] < second["y"] - 0.5
    ActionChains(visitor.driver).double_click(markers[0]).perform()
    visitor.settle()
    assert visitor.get("line.points") == [moved]
    hold = ActionChains(visitor.driver).click_and_hold(visitor.all("#line-plot .point")[0])
    hold.perform()
    visitor.until(lambda: visitor.get("line.points") == [])
    hold.reset_actions()
    visitor.press("line-undo")
    assert visitor.get("line.points") == [moved]


def test_a_long_press_that_removes_an_observation_moves_and_adds_no_other(visitor: Visitor) -> None:
    visitor.press("line-clear")
    visitor.click_at("line-plot", 300, 120)
    visitor.click_at("line-plot", 700, 200)
    kept = visitor.get("line.points[1]")
    hold = ActionChains(visitor.driver).click_and_hold(visitor.all("#line-plot .point")[0])
    hold.perform()
    visitor.until(lambda: visitor.get("line.points") == [kept])
    ActionChains(visitor.driver).move_by_offset(60, 60).perform()
    visitor.settle()
    hold.reset_actions()
    assert visitor.get("line.points") == [kept]


@pytest.fixture
def phone(visitor: Visitor) -> Iterator[Visitor]:
    screen = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    visitor.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    visitor.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    yield visitor
    visitor.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    visitor.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(("tab", "points"), [("line", "line.points"), ("map", "map.stations")])
def test_a_finger_adds_moves_and_removes_and_scrolls_the_page(tab: str, points: str, phone: Visitor) -> None:
    """A tap adds, a drag of a point moves it and not the page, a long press removes it; a swipe beside it scrolls."""
    phone.press(f"tab-{tab}")
    phone.press(f"{tab}-clear")
    plot, marker = f"#{tab}-plot", f"#{tab}-plot .point"
    phone.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", phone.find(f"{tab}-plot"))
    height = phone.get("scrollY")
    phone.touch("touchStart", phone.place(plot, 0.3, 0.3))
    phone.touch("touchEnd")
    phone.until(lambda: len(phone.get(points)) == 1)
    phone.settle()
    x, y = phone.place(marker)
    phone.touch("touchStart", (x, y))
    for step in range(1, 9):
        phone.touch("touchMove", (x + 6 * step, y + 8 * step))
    phone.touch("touchEnd")
    phone.settle()
    assert phone.place(marker) == pytest.approx((x + 48, y + 64), abs=1) and phone.get("scrollY") == height
    phone.touch("touchStart", phone.place(marker))
    phone.until(lambda: phone.get(points) == [])
    phone.touch("touchEnd")
    x, y = phone.place(plot, 0.5, 0.6)
    phone.touch("touchStart", (x, y))
    for step in range(1, 9):
        phone.touch("touchMove", (x, y - 12 * step))
    phone.touch("touchEnd")
    phone.until(lambda: phone.get("scrollY") > height)
    assert phone.get(points) == []


@pytest.mark.parametrize("model", [*LINE, MAP])
def test_how_long_an_update_takes_is_told(
    model: str, visitor: Visitor, record_property: Callable[[str, object], None]
) -> None:
    """From a change to the end of the drawing; the map is drawn twice, coarse and fine."""
    if model == MAP:
        visitor.press("tab-map")
    else:
        Select(visitor.find("line-model")).select_by_value(model)
    update = "changedMap()" if model == MAP else "changed()"
    timed = f"const start = performance.now(); await {update}; all.push(performance.now() - start)"
    times = visitor.get(f"(async () => {{ const all = []; while (all.length < 5) {{ {timed}; }} return all; }})()")
    record_property(f"An update of the page, {model}", f"{min(times):.0f} ms, median {np.median(times):.0f} ms")
    assert min(times) > 0


def test_everything_on_the_line_can_be_done_by_keyboard(visitor: Visitor) -> None:
    visitor.press("line-clear")
    visitor.press("line-add")
    focused = visitor.driver.switch_to.active_element
    assert focused.get_attribute("aria-label").startswith("Observation 1 at x 0.00")
    focused.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_UP, Keys.SHIFT + Keys.ARROW_RIGHT)
    visitor.settle()
    assert visitor.get("line.points[0].x") == pytest.approx(0.3)
    assert "at x 0.30" in visitor.driver.switch_to.active_element.get_attribute("aria-label")
    visitor.press("line-add")
    for left in (1, 0):
        visitor.driver.switch_to.active_element.send_keys(Keys.DELETE)
        visitor.settle()
        assert visitor.get("line.points.length") == left
    visitor.find("tab-line").send_keys(Keys.ARROW_RIGHT)
    assert visitor.find("map").is_displayed() and not visitor.find("line").is_displayed()


@pytest.mark.parametrize("model", LINE)
def test_moving_all_points_changes_the_full_prediction_alone(model: str, visitor: Visitor) -> None:
    """The equivariant part travels with the points; far away the full prediction is the same."""
    Select(visitor.find("line-model")).select_by_value(model)
    visitor.settle()
    here = visitor.get("latest")
    visitor.slide("line-shift", 1.5)
    moved = visitor.get("latest")
    visitor.slide("line-shift", 18)
    away = visitor.get("latest")
    for other in (moved, away):
        np.testing.assert_allclose(other["part"]["mean"], here["part"]["mean"], atol=1e-4)
    assert np.abs(np.subtract(moved["full"]["mean"], here["full"]["mean"])).max() > 0.1
    np.testing.assert_allclose(away["full"]["mean"], away["part"]["mean"], atol=1e-4)
    np.testing.assert_allclose(away["full"]["sd"], away["part"]["sd"], atol=1e-4)


@pytest.mark.parametrize(
    ("switch", "drawn"),
    [
        ("line-domain", "#line-plot .known"),
        ("line-change", "#line-plot .change"),
        ("line-bayes", "#line-plot .bayes"),
        ("line-oracle", "#line-plot .oracle"),
    ],
)
def test_a_switch_shows_and_hides_what_it_names(switch: str, drawn: str, visitor: Visitor) -> None:
    on = visitor.find(switch).is_selected()
    assert bool(visitor.all(drawn)) == on
    visitor.press(switch)
    visitor.until(lambda: bool(visitor.all(drawn)) != on)


def test_a_random_task_is_scored_as_in_pytorch(visitor: Visitor) -> None:
    visitor.press("line-random")
    visitor.until(lambda: visitor.find("line-scores").is_displayed())
    visitor.press("line-truth")
    assert visitor.all("#line-plot .back .truth")
    asked, noisy = visitor.get("lineTask()"), visitor.get("line.truth.noisy")
    seen = [number for number, y in enumerate(noisy) if y is not None]
    xc, yc, xt = (torch.tensor(asked[key], dtype=torch.float64).view(1, -1, 1) for key in KEYS)
    yt = torch.tensor([noisy[number] for number in seen], dtype=torch.float64)
    with torch.no_grad():
        both = pretrained(LINE[0]).symmetry_breaking(Task(xc, yc, xt))
    scores = [
        torch.distributions.Normal(each.mean[0, seen, 0], each.stddev[0, seen, 0]).log_prob(yt).mean() for each in both
    ]
    shown = [cell.text.replace("−", "-") for cell in visitor.all("#line-scores td")]
    assert [float(text) for text in shown] == pytest.approx([score.item() for score in scores], abs=1e-3)


def test_samples_differ_where_nothing_is_observed(visitor: Visitor) -> None:
    visitor.press("line-samples")
    visitor.until(lambda: len(visitor.all("#line-plot .sample")) == 4)
    samples, asked = np.array(visitor.get("line.samples")), visitor.get("lineTask()")
    distance = np.abs(np.subtract.outer(asked["xt"], asked["x"])).min(axis=1)
    spread = samples.std(axis=0)
    assert spread[distance < 0.05].mean() < spread[distance > 0.2].mean()


def test_the_game_ends_with_both_scores(visitor: Visitor) -> None:
    visitor.press("line-game")
    visitor.until(lambda: "5 measurements" in visitor.find("line-news").text)
    assert not visitor.find("line-truth").is_enabled()
    for x in (200, 350, 500, 650, 800):
        visitor.click_at("line-plot", x, 150)
    visitor.until(lambda: visitor.find("line-news").text.startswith("Your measurements"))
    truth, points = visitor.get("line.truth.values"), visitor.get("line.points")
    assert len(points) == 7 and visitor.all("#line-plot .back .truth")
    inside = [point for point in points[2:] if abs(point["x"]) < 3]
    heights = np.interp([point["x"] for point in inside], np.linspace(-3, 3, len(truth)), truth)
    assert np.abs(heights - [point["y"] for point in inside]).max() < 5 * GibbsTasks().noise


@pytest.mark.parametrize(
    ("asked", "then", "expected"),
    [
        ("drawSamples()", "line.points.pop(); changed()", "line.samples.length === 0"),
        ("addByButton()", "clearLine()", "line.points.length === 0"),
        ("randomTask()", "clearLine()", "line.points.length === 0 && line.truth === null"),
        ("startGame()", "clearLine()", "line.game === null && byId('line-news').textContent === ''"),
    ],
)
def test_late_answers_are_dropped(asked: str, then: str, expected: str, visitor: Visitor) -> None:
    assert visitor.get(f"(async () => {{ const late = {asked}; {then}; await late; return {expected}; }})()") is True


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("clearLine()", "line.points.length === 0 && byId('line-news').textContent === ''"),
        ("await startGame()", "line.game.left === MEASUREMENTS && !byId('line-truth').checked"),
    ],
)
@pytest.mark.parametrize("left", [1, 2])
def test_a_game_that_was_left_does_not_end_the_next(left: int, then: str, expected: str, visitor: Visitor) -> None:
    play = f"await startGame(); line.game.left = {left}; const late = measure(0); {then}; await late"
    assert visitor.get(f"(async () => {{ {play}; return {expected}; }})()") is True


def test_the_map_is_that_of_the_field_model(visitor: Visitor) -> None:
    visitor.press("tab-map")
    stations, region = visitor.get("map.stations"), visitor.get("region()")
    field = visitor.get("field")
    places = pd.DataFrame(field["cells"]["places"], columns=["latitude", "longitude"])
    context = pd.DataFrame(stations)
    context["latitude"] += region["south"]
    context["longitude"] += region["west"]
    expected = pretrained(MAP).predict(context.rename(columns={"temperature": "t2m"}), places)
    np.testing.assert_allclose(field["full"]["mean"], expected["mean"], atol=2e-3)
    np.testing.assert_allclose(field["full"]["sd"], expected["std"], atol=2e-3)
    np.testing.assert_allclose(field["part"]["mean"], expected["equivariant_mean"], atol=2e-3)


def test_stations_are_added_moved_set_and_carried_elsewhere(visitor: Visitor) -> None:
    visitor.press("tab-map")
    visitor.press("map-clear")
    assert visitor.get("map.stations") == []
    visitor.click_at("map-plot", 80, 90)
    visitor.slide("map-temperature", 281.5)
    visitor.press("map-add")
    visitor.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    visitor.slide("map-temperature", 299)
    first, second = visitor.get("map.stations")
    assert (first["temperature"], second["temperature"]) == (281.5, 299)
    assert "299.0 K (25.9 °C)" in visitor.find("map-temperature-out").text
    marker = visitor.all("#map-plot .point")[0]
    ActionChains(visitor.driver).drag_and_drop_by_offset(marker, 60, 60).perform()
    visitor.settle()
    moved = visitor.get("map.stations")[0]
    assert moved["longitude"] > first["longitude"] + 1 and moved["latitude"] < first["latitude"] - 1
    assert np.abs(visitor.get("sheets()[2].values")).max() > 1
    coast = visitor.all("#map-plot .coast")[0].get_attribute("d")
    Select(visitor.find("map-region")).select_by_visible_text("UK")
    visitor.settle()
    assert visitor.all("#map-plot .coast")[0].get_attribute("d") not in ("", coast)
    assert visitor.get("map.stations") == [moved, second]
    assert np.abs(visitor.get("sheets()[2].values")).max() < 1e-3
    visitor.press("map-undo")
    assert visitor.get("map.region") == 0
    assert not visitor.find("map-days").is_displayed()


def test_a_hot_station_is_told_as_it_is(visitor: Visitor) -> None:
    visitor.press("tab-map")
    visitor.get("(map.stations[0].temperature = 314.2, select(0))")
    assert visitor.find("map-temperature-out").text.startswith("314.2 K")


def test_undo_shows_the_day_that_is_drawn(visitor: Visitor) -> None:
    visitor.press("tab-map")
    cells = "new Array(region().rows * region().columns)"
    visitor.get(f"(region().days = {{ first: {cells}.fill(2900), second: {cells}.fill(2950) }}, offerDays())")
    Select(visitor.find("map-day")).select_by_value("second")
    for button in ("map-load", "map-clear", "map-undo"):
        visitor.press(button)
    assert visitor.get("map.day") == visitor.find("map-day").get_attribute("value") == "second"


def test_every_order_of_the_cells_is_as_likely(visitor: Visitor) -> None:
    visitor.driver.execute_script("let seed = 1; Math.random = () => (seed = (seed * 16807) % 2147483647) / 2147483647")
    orders = visitor.get("Array.from({ length: 6000 }, () => shuffled([0, 1, 2]).join(''))")
    counts = pd.Series(orders).value_counts()
    assert len(counts) == 6 and counts.between(850, 1150).all()


def test_every_control_has_a_name(visitor: Visitor) -> None:
    for tab in ("tab-line", "tab-map"):
        visitor.press(tab)
        controls = [each for each in visitor.all("button, select, input, .point") if each.is_displayed()]
        assert len(controls) > 10 and all(each.accessible_name for each in controls)


@pytest.mark.parametrize("tab", ["tab-line", "tab-map"])
def test_the_page_fits_a_phone_and_the_dark(tab: str, visitor: Visitor) -> None:
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    visitor.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    screen = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    visitor.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        visitor.press(tab)
        assert visitor.get("document.documentElement.scrollWidth") <= 360
        colour = visitor.get("getComputedStyle(document.body).backgroundColor")
        assert all(int(part) < 60 for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    finally:
        visitor.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        visitor.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_real_day_becomes_stations(driver: Chrome, climate: Path, tmp_path: Path) -> None:
    file = tmp_path / "demo.html"
    file.write_text(page(climate), encoding="utf-8")
    visitor = Visitor(driver, file)
    visitor.open()
    visitor.press("tab-map")
    visitor.slide("map-cells", 12)
    visitor.press("map-load")
    stations, truth, step = visitor.get("map.stations"), visitor.get("dayValues()"), visitor.get("region().step")
    columns = visitor.get("region().columns")
    for station in stations:
        row, column = round(station["latitude"] / step), round(station["longitude"] / step)
        assert station["temperature"] == truth[row * columns + column]
    assert len(stations) == 12 and "Error in the other cells" in visitor.find("map-status").text
    titles = [each.text for each in visitor.all("#map-panels figcaption")]
    assert titles[4].startswith("Elevation") and titles[5].startswith("The truth")
