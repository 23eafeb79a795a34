"""Take the screenshot of a report for docs/report.md; needs chromium."""

import io
import json
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from homing.report.build import write_report

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "images" / "report.png"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "ant-crl"
        run.mkdir()
        (run / "config.json").write_text(json.dumps({"agent": "crl", "env": "ant"}))
        (run / "summary.json").write_text("{}")
        shutil.copy(ROOT / "results" / "learn_crl_ant_h200.jsonl", run / "metrics.jsonl")
        page = Path(folder) / "report.html"
        write_report([run], page)
        take_screenshot(page)


def take_screenshot(report: Path) -> None:
    with sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        page = browser.new_page(viewport={"width": 1200, "height": 930}, color_scheme="light")
        page.goto(report.as_uri())
        page.get_by_role("button", name="every seed").click()
        page.wait_for_selector("#curves svg path")
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(OUT, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
