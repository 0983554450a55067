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
    document = json.loads(json.dumps(board.build(), cls=JSONEncoder))
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number  # links to a panel go by it
    # Defaults of a newer Grafana than compose.yaml names, and of other kinds of variables.
    for link in document["links"]:
        del link["placement"]
    for variable in document["templating"]["list"]:
        for key in ("auto", "auto_count", "auto_min"):
            del variable[key]
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
