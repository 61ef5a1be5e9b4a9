"""Write the dashboards to agent/costprobe/ui/grafana/dashboards; with --check, report stale files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from scripts.dashboards.boards import BOARDS, build
from scripts.dashboards.prometheus import prometheus_edition
from scripts.dashboards.queries import PROMETHEUS

FOLDER = Path(__file__).parents[2] / "agent/costprobe/ui/grafana/dashboards"


def described(name: str) -> dict[str, Any]:
    """Return a dashboard in Grafana's format, with what both editions are written from."""
    board = build(name).build()
    for number, panel in enumerate(board.panels or [], start=1):
        panel.id_val = number
    found: dict[str, Any] = json.loads(json.dumps(board, cls=JSONEncoder))
    return found


def influxdb_edition(board: dict[str, Any]) -> dict[str, Any]:
    """Return the edition for an InfluxDB data source."""
    edition: dict[str, Any] = json.loads(json.dumps(board))
    targets = [mark["target"] for mark in edition["annotations"]["list"]]
    targets += [target for panel in edition["panels"] for target in panel.get("targets", ())]
    for target in targets:
        del target[PROMETHEUS]
    return edition


def written(board: dict[str, Any]) -> str:
    """Return the text of a file: a panel a line."""
    panels = ",\n".join(json.dumps(panel, sort_keys=True) for panel in board["panels"])
    rest = json.dumps({**board, "panels": []}, sort_keys=True)
    return rest.replace('"panels": []', f'"panels": [\n{panels}\n]', 1) + "\n"


def main(folder: Path, *, check: bool) -> int:
    """Write the files, or compare them; return the exit code: 1 if a file differs."""
    boards = {f"{name}.json": described(name) for name in BOARDS}
    files = {folder / name: written(influxdb_edition(board)) for name, board in boards.items()}
    files |= {
        folder / "prometheus" / name: written(prometheus_edition(board))
        for name, board in boards.items()
    }
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    stale += [path for path in folder.rglob("*.json") if path not in files]
    if check:
        for path in stale:
            sys.stderr.write(f"{path}: is stale; run: python -m scripts.dashboards\n")
        return 1 if stale else 0
    (folder / "prometheus").mkdir(parents=True, exist_ok=True)
    for path in stale:
        if path in files:
            path.write_text(files[path])
        else:
            path.unlink()
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(FOLDER, check="--check" in sys.argv[1:]))
