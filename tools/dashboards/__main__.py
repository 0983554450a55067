"""Writes the dashboards anew: `python -m tools.dashboards`."""

from __future__ import annotations

from tools.dashboards import FOLDER, files

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)
