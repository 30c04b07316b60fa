"""The page in a real browser: its numbers are PyTorch's, and every control does what it says."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aenp.data.gp import GibbsTasks
from aenp.demo.page import LINE, MAP, page
from aenp.experiments.gp import oracles
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
PLAIN = "(value) => JSON.parse(JSON.stringify(value, (_, v) => (ArrayBuffer.isView(v) ? Array.from(v) : v)))"
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
        script = (
            f"const [...a] = arguments; const done = a.pop(); Promise.resolve({expression}).then({PLAIN}).then(done)"
        )
        return self.driver.execute_async_script(script, *arguments)

    def click(self, name: str) -> None:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", self.find(name))
        self.find(name).click()

    def settle(self) -> None:
        """Waits until the page has drawn what it was last asked for."""
        self.get("(async () => { await updateLine(); await updateMap(); })()")

    def slide(self, name: str, value: float) -> None:
        """Sets a slider as if it were dragged."""
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.driver.execute_script(script, self.find(name), value)
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
    with torch.no_grad():
        for task, answer in zip(tasks, answers, strict=True):
            for ours, theirs in zip(process.symmetry_breaking(task), (answer["full"], answer["part"]), strict=True):
                np.testing.assert_allclose(theirs["mean"], ours.mean.flatten(), atol=1e-4, rtol=0)
                np.testing.assert_allclose(theirs["sd"], ours.stddev.flatten(), atol=1e-4, rtol=0)


KEYS = {"x": "xc", "y": "yc", "xt": "xt"}


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
