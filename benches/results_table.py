"""Prints the README's tables of results from recorded runs.

    python3 benches/results_table.py WARPTREE [--ceilings DOCTOR] traces/*-h200.jsonl.gz
    python3 benches/results_table.py WARPTREE --tensor traces/{gemm_bf16,attention}*-h200.jsonl.gz

WARPTREE is the program; all that is shown comes from `WARPTREE show TRACE --json`. DOCTOR is what `WARPTREE doctor
--json` printed on the same kind of GPU: with it the table tells too how far winners are from what that GPU was
measured to do, in copied bytes or fp32 operations a second. --tensor prints the columns of kernels that power limits and
target instructions prove.
"""

import argparse
import json
import re
import subprocess
import sys

# Nanoseconds in the units that bounds are told in.
UNITS = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9}

# The best that a language model reached over the library, after eight turns (PTXBench, arXiv 2608.17379; an H100, and
# for GEMM 8192 × 7168 × 5120).
PUBLISHED = {
    "gemm_bf16": 0.98,
    "attention_fwd": 0.84,
    "attention_fwd_causal": 0.81,
    "attention_bwd": 0.54,
    "attention_bwd_causal": 0.64,
}


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


def ratio(of):
    low, middle, high = (of["ratio"][key] for key in ("low", "median", "high"))
    return f"{middle:.3f}× [{low:.3f}, {high:.3f}]"


def against(duel):
    if burst := duel.get("burst"):
        return f"{ratio(duel)}, bursts {ratio(burst)} {title(duel)}"
    return f"{ratio(duel)} {title(duel)}"


class Ceilings:
    """What the GPU was measured to do, as shares of what its facts promise."""

    def __init__(self, program, path):
        with open(path, encoding="utf-8") as file:
            found = [finding["measured"] for finding in json.load(file) if finding.get("measured")]
        if not found:
            sys.exit(f"{path} tells no ceilings: was it made by `warptree doctor --json` on a GPU?")
        self.path, self.measured = path, found[0]
        self.tensor_types = {task["name"]: task["tensor_types"] for task in asked(program, "tasks")}

    def share(self, story, time, bound):
        """Of the measured ceiling, where one was measured that bounds the task."""
        config, gpu = story["config"], self.measured["gpu"]
        if config["gpu"] != gpu:
            sys.exit(f"{self.path} is of a {gpu}, {config['task']} was searched on a {config['gpu']}")
        if bound is None:
            return "–"
        what, least = bound
        if "bytes" in what:
            ceiling = self.measured["copy_share"]
        elif self.tensor_types.get(config["task"]) == []:
            ceiling = self.measured["fp32_share"]
        else:
            return "–"
        return f"{100 * least / ceiling / time:.0f} %"


def asked(program, *words):
    shown = subprocess.run([program, *words, "--json"], check=True, capture_output=True, text=True)
    return json.loads(shown.stdout)


def roofline(winner):
    """What bounds the task, and the least time that it allows."""
    evidence = (winner["measurement"]["diagnosis"] or {"evidence": []})["evidence"]
    for one in evidence:
        if told := re.match(r"\d+ % of the roofline: (.*) is ([\d.]+) (\S+)$", one["text"]):
            return told[1], float(told[2]) * UNITS[told[3]]
    return None


def space(story):
    """The space that the winner comes from."""
    whats = [step["what"] for step in story["path"]]
    return next(told[1] for what in whats if (told := re.match("space ([^,]+), knobs at their defaults", what)))


def row(story, ceilings, named):
    """`named`: the space is told too, for the task has another row."""
    winner = story["winner"]
    claim = winner.get("claim") or {"duels": [], "noise_floor": None, "winner": None}
    measured = claim["winner"]["median"] if claim["winner"] else median(winner)
    shown = time(measured)
    if (power := claim.get("power")) and power["limited"]:
        # what the search measured of the default, and the roofline's clock, are those of bursts
        measured = power["winner"]["burst"]
        shown = f"{time(power['winner']['sustained'])}, bursts {time(measured)}"
    default = next((step["time"] for step in story["path"] if "knobs at their defaults" in step["what"]), None)
    duels = [against(duel) for duel in claim["duels"]]
    bound = roofline(winner)
    floor = claim["noise_floor"]
    return [
        f"`{story['config']['task']}`" + (f", space `{space(story)}`" if named else ""),
        shown,
        "<br>".join(duels) or "not measured",
        f"{default / measured:.1f}×" if default else "–",
        f"{100 * bound[1] / measured:.0f} %" if bound else "–",
        *([ceilings.share(story, measured, bound)] if ceilings else []),
        f"{100 * floor:.1f} %" if floor is not None else "–",
        f"{story['evaluations']} in {story['elapsed_ms'] / 1e3:.0f} s",
    ]


def tensor_row(story):
    """Two clocks, the library tuned and as it comes, and what proves the instructions."""
    task, winner = story["config"]["task"], story["winner"]
    claim = winner.get("claim")
    if not claim:
        sys.exit(f"the run of {task} ended before its final claim")
    tuned = claim["duels"][0]
    untuned = [duel for duel in claim["duels"] if is_as_it_comes(duel)]
    power = claim["power"]["winner"] if claim["power"] and claim["power"]["limited"] else None
    proof = next((one for one in winner["measurement"]["checked"] if one.startswith("target instructions")), None)
    done = re.search(r"did ([\d.]+) % of the work", proof or "")
    default = next(step["time"] for step in story["path"] if "knobs at their defaults" in step["what"])
    return [
        f"`{task}`",
        time(power["burst"] if power else claim["winner"]["median"]),
        time(power["sustained"]) if power else "the same",
        time(default),
        f"{bursts(tuned)} {title(tuned)}",
        ratio(tuned) if tuned.get("burst") else "the same",
        "<br>".join(f"{bursts(duel)} {title(duel)}" for duel in untuned if duel is not tuned) or "the same",
        f"{PUBLISHED[task]:.2f}×" if task in PUBLISHED else "–",
        f"{done[1]} %" if done else "not profiled",
        f"{story['evaluations']} in {story['elapsed_ms'] / 1e3:.0f} s",
    ]


TENSOR_HEAD = [
    "task",
    "winner, bursts",
    "full load",
    "space's default",
    "against the tuned library, bursts",
    "full load",
    "against the library as it comes, bursts",
    "published best",
    "work by wgmma and TMA",
    "kernels judged",
]


def is_as_it_comes(duel):
    kind = duel["variant"]["kind"]
    return kind == "eager" or (kind == "algorithm" and duel["variant"]["index"] == 0)


def bursts(duel):
    return ratio(duel.get("burst") or duel)


def median(winner):
    return winner["measurement"]["time"]["median"]


def main():
    parser = argparse.ArgumentParser(description="Prints the table of results from recorded runs.")
    parser.add_argument("program", metavar="WARPTREE")
    parser.add_argument("traces", metavar="TRACE", nargs="+")
    parser.add_argument("--ceilings", metavar="DOCTOR", help="what `warptree doctor --json` printed on that GPU")
    parser.add_argument("--tensor", action="store_true", help="the columns of kernels of the tensor cores")
    told = parser.parse_args()
    stories = [asked(told.program, "show", trace) for trace in told.traces]
    if told.tensor:
        return printed([TENSOR_HEAD, *map(tensor_row, stories)])
    ceilings = Ceilings(told.program, told.ceilings) if told.ceilings else None
    head = ["task", "winner", "against", "over the space's default", "of the roofline"]
    head += ["of the measured ceiling"] if ceilings else []
    head += ["noise floor", "kernels judged"]
    tasks = [story["config"]["task"] for story in stories]
    printed([head, *(row(story, ceilings, tasks.count(task) > 1) for story, task in zip(stories, tasks))])


def printed(rows):
    for cells in [rows[0], ["---"] * len(rows[0]), *rows[1:]]:
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
