"""Prints the README's table of results from recorded runs.

    python3 benches/results_table.py WARPTREE traces/*-h200.jsonl.gz

WARPTREE is the program; all that is shown comes from `WARPTREE show TRACE --json`.
"""

import json
import re
import subprocess
import sys


def time(nanoseconds):
    if nanoseconds >= 1e6:
        return f"{nanoseconds / 1e6:.3f} ms"
    return f"{nanoseconds / 1e3:.1f} µs"


def title(duel):
    kind = duel["variant"]["kind"]
    if kind == "algorithm":
        index = duel["variant"]["index"]
        return f"{duel['name']}, " + ("default algorithm" if index == 0 else f"algorithm {index + 1}")
    return f"{duel['name']}, {kind.replace('_', '.').replace('compiled', 'torch.compile')}"


def ratio(duel):
    low, middle, high = (duel["ratio"][key] for key in ("low", "median", "high"))
    return f"{middle:.3f}× [{low:.3f}, {high:.3f}]"


def row(story):
    winner = story["winner"]
    claim = winner.get("claim") or {"duels": [], "noise_floor": None, "winner": None}
    measured = claim["winner"]["median"] if claim["winner"] else median(winner)
    default = next((step["time"] for step in story["path"] if "knobs at their defaults" in step["what"]), None)
    duels = [f"{ratio(duel)} {title(duel)}" for duel in claim["duels"]]
    evidence = (winner["measurement"]["diagnosis"] or {"evidence": []})["evidence"]
    roofline = next((m[1] for e in evidence if (m := re.match(r"(\d+ %) of the roofline", e["text"]))), "–")
    floor = claim["noise_floor"]
    return [
        f"`{story['config']['task']}`",
        time(measured),
        "<br>".join(duels) or "not measured",
        f"{default / measured:.1f}×" if default else "–",
        roofline,
        f"{100 * floor:.1f} %" if floor is not None else "–",
        f"{story['evaluations']} in {story['elapsed_ms'] / 1e3:.0f} s",
    ]


def median(winner):
    return winner["measurement"]["time"]["median"]


def main():
    program, *traces = sys.argv[1:]
    head = ["task", "winner", "against", "over the space's default", "of the roofline", "noise floor", "kernels judged"]
    rows = [head, ["---"] * len(head)]
    for trace in traces:
        shown = subprocess.run([program, "show", trace, "--json"], check=True, capture_output=True, text=True)
        rows.append(row(json.loads(shown.stdout)))
    for cells in rows:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
