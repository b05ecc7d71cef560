"""Draws what the auditors of two runs found: with the setting, and without it.

python examples/bank/picture.py run.json bank.svg       # of `bank.py --json run.json`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accounts import SETTING, TOTAL
from auditors import Audit

STYLES: dict[str, tuple[str, str, str]] = {
    "client": ("o", "#1f6fb4", "stock Python client"),
    "client past": ("h", "#5aa9e6", "the same, in the past"),
    "command": ("s", "#2e8b57", "barnabas consume"),
    "command past": ("D", "#7a9a01", "barnabas consume --as-of"),
    "batch": ("^", "#c4501b", "Spark batch"),
    "batch past": ("P", "#b8860b", "Spark batch with asOf"),
    "stream": ("v", "#8a3ffc", "Spark stream"),
}


def draw(outcomes: Sequence[Any], path: Path) -> None:
    """Draw the totals over the time, a panel for each run."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, panels = pyplot.subplots(
        1, len(outcomes), figsize=(11, 4.2), sharey=True, layout="constrained"
    )
    for panel, outcome in zip(panels, outcomes, strict=True):
        panel.axhline(TOTAL, color="black", linewidth=0.8)
        for auditor, (marker, color, name) in STYLES.items():
            found = [audit for audit in outcome.audits if audit.auditor == auditor]
            panel.scatter(
                [audit.at_s for audit in found],
                [audit.total for audit in found],
                s=22,
                marker=marker,
                color=color,
                alpha=0.75,
                linewidths=0,
                label=name if found else None,
            )
        wrong = len(outcome.wrong)
        panel.set_title(
            f"{SETTING}={str(outcome.whole).lower()}\n"
            f"{wrong} of {len(outcome.audits)} totals are wrong",
            fontsize=11,
        )
        panel.set_xlabel("seconds")
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        panel.grid(visible=True, alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"sum of all accounts (right: {TOTAL:,})")
    if any(outcome.audits for outcome in outcomes):
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9
        )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Draw the runs in a JSON file."""
    from bank import Outcome

    rows = json.loads(Path(sys.argv[1]).read_text())
    outcomes = [
        Outcome(**{**row, "audits": [Audit(*audit) for audit in row["audits"]]}) for row in rows
    ]
    draw(outcomes, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
