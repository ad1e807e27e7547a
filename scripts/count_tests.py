#!/usr/bin/env python3
"""Sums up what the test programs of one `meson test` reported, case by case.

Usage: count_tests.py testlog.json

A test program closes with "room_test: N passed, N failed, N skipped" (lib/base/test_main.cc); any
other test counts as one. One that crashed, timed out or failed after its cases counts as a failure.
Prints the skipped cases and closes with "N passed, N failed"; exit code 1 if anything failed.
"""
import json
import pathlib
import re
import sys

SUMMARY = re.compile(r"^\S+_test: (\d+) passed, (\d+) failed, (\d+) skipped$", re.MULTILINE)
SKIPPED = re.compile(r"^skipped: (.*)$", re.MULTILINE)


def count(test):
    """(passed, failed, skipped) of one entry of the log."""
    result = test["result"]
    summaries = SUMMARY.findall(test.get("stdout") or "")
    if not summaries:
        if result == "SKIP":
            return 0, 0, 1
        return (1, 0, 0) if result == "OK" else (0, 1, 0)
    passed, failed, skipped = map(int, summaries[-1])
    if result != "OK" and failed == 0:
        failed = 1
    return passed, failed, skipped


def main():
    path = pathlib.Path(sys.argv[1])
    tests = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    total = [0, 0, 0]
    for test in tests:
        name = test["name"].split(" / ")[-1]
        counts = count(test)
        total = [a + b for a, b in zip(total, counts)]
        if test["result"] == "SKIP":
            print(f"skipped: {name}")
        for case in SKIPPED.findall(test.get("stdout") or ""):
            print(f"skipped: {name}: {case}")
        if test["result"] not in ("OK", "SKIP"):
            print(f"failed: {name}: {test['result']}")
    if not tests:
        total[1] = 1  # nothing ran: the build failed, or no such test
    passed, failed, skipped = total
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
