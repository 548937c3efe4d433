"""Pictures of a report for README.md, light and dark, by headless Chromium.

python scripts/picture.py REPORT.html [FOLDER]
"""

import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "cli")]
from browser import Browser  # noqa: E402

report, folder = (
    pathlib.Path(sys.argv[1]).resolve(),
    pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs/assets"),
)
with tempfile.TemporaryDirectory() as profile, Browser(profile) as browser:
    for name in ("light", "dark"):
        browser.look_like(1000, 760, dark=name == "dark")
        browser.open(report)
        browser.screenshot(folder / f"report-{name}.png")
