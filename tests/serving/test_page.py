"""Invariant: in a real browser, at the width of a desk and of a phone, what is spoken into the microphone arrives as
text, and the change of mind is seen, heard by screen readers, and drawn; by mouse and by keyboard.
"""

import re
import shutil
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_server import ROOT, LiveServer
from mind_changer import REVISED, STUBBORN, said

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
STATIC = ROOT / "transducer_gn" / "serving" / "static"
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

browser_only = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is said, as a file."""
    path = tmp_path_factory.mktemp("said") / "said.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(said().tobytes())
    return path


@pytest.fixture
def launch(recording: Path) -> Iterator[Callable[[], object]]:
    """Start a browser whose microphone hears the recording, once."""
    driver = pytest.importorskip("playwright.sync_api")
    with driver.sync_playwright() as running:
        flags = [
            "--no-sandbox",
            "--use-fake-device-for-media-stream",
            "--use-fake-ui-for-media-stream",
            f"--use-file-for-fake-audio-capture={recording}%noloop",
        ]
        opened: list[object] = []

        def start() -> object:
            opened.append(running.chromium.launch(executable_path=CHROMIUM, args=flags))
            return opened[-1]

        yield start
        for browser in opened:
            browser.close()


def open_page(browser: object, server: LiveServer, viewport: dict[str, int], problems: list[str]) -> object:
    """The page, ready; what the browser complains of is collected."""
    page = browser.new_context(viewport=viewport, permissions=["microphone"]).new_page()
    page.set_default_timeout(30000)
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(server.address)
    page.wait_for_selector("body[data-ready]")
    return page


def panel(page: object, number: int) -> object:
    return page.locator(".panel").nth(number)


def words(page: object, number: int, kind: str) -> str:
    """The words of a panel that are settled, open or withdrawn."""
    return " ".join(panel(page, number).locator(f".text {kind}").all_inner_texts())


def page_that_heard(launch: Callable[[], object], server: LiveServer, viewport: dict[str, int]) -> tuple[object, list]:
    """The page once the recording was spoken into it, and what the browser complained of.

    The microphone plays in real time: where the machine is busy samples are lost, and another sentence was spoken. Then
    it is spoken again.
    """
    for patience in (8000, 15000, 30000, 30000, 30000):
        problems: list[str] = []
        page = open_page(launch(), server, viewport, problems)
        page.get_by_role("button", name="Microphone").click()
        try:
            panel(page, 1).locator(".text", has_text="FAN WENT").wait_for(timeout=patience)
            panel(page, 1).locator(".text del").first.wait_for(timeout=patience)
        except pytest.importorskip("playwright.sync_api").TimeoutError:
            continue
        if words(page, 1, "del") == "FAN":
            return page, problems
    return pytest.fail("the change of mind was never seen")


@browser_only
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_a_sentence_is_spoken_and_the_change_of_mind_is_seen(
    server: LiveServer, launch: Callable[[], object], viewport: dict[str, int], tmp_path: Path
) -> None:
    page, problems = page_that_heard(launch, server, viewport)
    page.screenshot(path=tmp_path / "change.png", full_page=True)
    assert words(page, 1, "del") == "FAN"
    assert words(page, 1, "span.word") == REVISED
    assert "FAN became VAN" in panel(page, 1).locator(".changes").inner_text()
    panel(page, 0).locator(".text", has_text=STUBBORN).wait_for()
    assert panel(page, 0).locator(".text del").count() == 0
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("status").filter(has_text="Done.").wait_for()
    assert words(page, 0, ".word.stable") == STUBBORN and words(page, 1, ".word.stable") == REVISED
    # Screen readers hear of the change, and of what has settled.
    page.locator("[aria-live=polite]", has_text="not FAN, but VAN").wait_for(state="attached")
    page.locator("[aria-live=polite]", has_text=REVISED).wait_for(state="attached")
    for number in (0, 1):
        assert panel(page, number).locator(".readings path.reading").count() >= 2
        assert re.search(r"FAN|VAN", panel(page, number).locator(".readings").get_attribute("aria-label"))
        assert re.fullmatch(r"\d+ ms", panel(page, number).locator("[data-measure=delay]").inner_text())
    assert panel(page, 1).locator("[data-measure=withdrawn]").inner_text() == "1"
    boxes = [panel(page, number).bounding_box() for number in (0, 1)]
    assert (boxes[0]["y"] == boxes[1]["y"]) == (viewport is DESK)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []


@browser_only
def test_a_file_is_heard_by_keyboard_alone(server: LiveServer, launch: Callable[[], object], recording: Path) -> None:
    problems: list[str] = []
    page = open_page(launch(), server, DESK, problems)
    reached = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached[:3] == ["microphone", "file", "aloud"]
    page.locator("#aloud").focus()
    page.keyboard.press("Space")
    with page.expect_file_chooser() as chosen:
        page.locator("#file").focus()
        page.keyboard.press("Enter")
    chosen.value.set_files(recording)
    page.get_by_role("status").filter(has_text="Listening to said.wav").wait_for()
    page.get_by_role("status").filter(has_text="Done.").wait_for()
    assert words(page, 1, ".word.stable") == REVISED
    # What cannot be read is said, and the page goes on.
    page.locator("#file").set_input_files({"name": "no.wav", "mimeType": "audio/wav", "buffer": b"no audio"})
    page.get_by_role("status").filter(has_text="cannot read this file").wait_for()
    page.get_by_role("button", name="Microphone").focus()
    page.keyboard.press("Enter")
    page.get_by_role("status").filter(has_text="Listening to the microphone").wait_for()
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.press("Enter")
    page.get_by_role("status").filter(has_text="Listening").wait_for(state="detached")
    # The button is switched off; the focus goes back to where it began.
    assert page.evaluate("document.activeElement.id") == "microphone"
    assert problems == []


@browser_only
def test_the_microphone_takes_over(server: LiveServer, launch: Callable[[], object], recording: Path) -> None:
    problems: list[str] = []
    page = open_page(launch(), server, PHONE, problems)
    page.locator("#aloud").uncheck()
    page.locator("#file").set_input_files(recording)
    page.get_by_role("status").filter(has_text="Listening to said.wav").wait_for()
    page.get_by_role("button", name="Microphone").click()
    page.get_by_role("status").filter(has_text="Listening to the microphone").wait_for()
    button = page.get_by_role("button", name="Listening", pressed=True)
    button.click()
    page.get_by_role("status").filter(has_text="Listening").wait_for(state="detached")
    page.get_by_role("button", name="Microphone", pressed=False).wait_for()
    assert problems == []


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb, as WCAG 2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_told_from_their_ground() -> None:
    style = (STATIC / "live.css").read_text()
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", part)) for part in style.split("prefers-color-scheme")[:2])
    assert light.keys() == dark.keys()
    for theme in (light, dark):
        texts = ["ink", "quiet", "gone", "open", "recording", "accent", *(f"reading-{n}" for n in range(4))]
        pairs = [(text, ground) for text in texts for ground in ("paper", "card")] + [("on-accent", "accent")]
        for text, ground in pairs:
            brighter, darker = sorted((luminance(theme[text]), luminance(theme[ground])), reverse=True)
            assert (brighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)
