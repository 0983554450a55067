"""Makes the dashboards of deploy/grafana/dashboards; a test holds the committed files equal."""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from tools.dashboards.overview import overview
from tools.dashboards.speculation import speculation

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"


def files() -> dict[str, str]:
    """File name → whole text."""
    return {"overview.json": _text(overview()), "speculation.json": _text(speculation())}


def _text(board: Dashboard) -> str:
    built = board.build()
    for number, panel in enumerate(built.panels or (), start=1):
        panel.id_val = number  # links to a panel go by it
    return json.dumps(built, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
