#!/usr/bin/env python3
"""Trains the bundled recipes and checks that each reaches the metric its header states.

Usage: check_recipes.py LUMEN_TRAIN RECIPE_DIRECTORY [NAME…]

A header says "# Metric: eval_accuracy …, at least 0.98." or "…, at most 1.50."; a recipe that states
no bound only has to finish. A recipe on a real data set is skipped, by name, unless LUMEN_DATA is
set. Closes with "N passed, N failed, N skipped".
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BOUND = re.compile(r"# Metric: (eval_\w+)(.*?)(at least|at most) ([0-9.]*[0-9])", re.S)


def stated(text):
    """(metric, "at least" or "at most", number) of a recipe's header, or None."""
    header = text.split("\nname", 1)[0]
    found = BOUND.search(header)
    return (found[1], found[3], float(found[4])) if found else None


def last_metrics(directory):
    metrics = {}
    for line in (directory / "metrics.jsonl").read_text().splitlines():
        metrics.update({k: v for k, v in json.loads(line).items() if k.startswith("eval_")})
    return metrics


def check(tool, recipe, directory):
    """An empty text if the recipe reaches its metric, else what is wrong."""
    run = subprocess.run([tool, recipe, "--out", directory], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        return f"exit code {run.returncode}: {run.stderr.strip().splitlines()[-1:]}"
    bound = stated(recipe.read_text())
    if bound is None:
        return ""
    key, relation, limit = bound
    value = last_metrics(directory).get(key)
    print(f"{recipe.stem}: {key} {value}, stated {relation} {limit}", flush=True)
    if value is None:
        return f"there is no {key} in metrics.jsonl"
    reached = value >= limit if relation == "at least" else value <= limit
    return "" if reached else f"{key} is {value}, stated is {relation} {limit}"


def main():
    tool, recipes, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    passed = failed = skipped = 0
    for recipe in sorted(recipes.glob("*.toml")):
        text = recipe.read_text()
        if names and recipe.stem not in names:
            continue
        if "LUMEN_DATA" in text and not os.environ.get("LUMEN_DATA"):
            print(f"skipped: {recipe.stem}: needs LUMEN_DATA")
            skipped += 1
            continue
        with tempfile.TemporaryDirectory() as directory:
            wrong = check(tool, recipe, pathlib.Path(directory) / "run")
        print(f"{recipe.stem}: {'FAILED: ' + wrong if wrong else 'passed'}", flush=True)
        passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
