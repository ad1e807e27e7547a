#!/usr/bin/env python3
"""Checks the corpus of the built-in model: recipes/lumen-tiny/*.txt.

    scripts/check_corpus.py [--near] [FILE...]

A family is a block of lines between blank lines; lines that begin with # above the first family of
a file are comments:

    Q: a question (9 to 27 of them)
    H: a held-out paraphrase (2): never trained on, only asked in the test
    A: the answer, ASCII, at most 45 words
    F: what a right answer contains, lower case; alternatives are separated by " | "

Every error is one line FILE:LINE. With --near it also lists held-out questions whose most similar
Q, by weighted shared words, belongs to another family with another fact: a hint that two families
may be confused. Exit code 0 if there is no error, 65 otherwise.
"""
import collections
import math
import pathlib
import re
import sys

MIN_Q, MAX_Q, HELD_OUT, MAX_WORDS = 9, 27, 2, 45
KINDS = ("Q", "H", "A", "F")


class Family:
    def __init__(self, place):
        self.place = place
        self.lines = {kind: [] for kind in KINDS}

    def facts(self):
        return [fact.strip() for line in self.lines["F"] for fact in line.split(" | ")]


def words(text):
    return re.findall(r"[a-z0-9_]+", text.lower())


def read_families(path, errors):
    families, family = [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        place = f"{path}:{number}"
        if not line.isascii():
            errors.append(f"{place}: not ASCII: {line!r}")
        if line != line.strip() or "  " in line:
            errors.append(f"{place}: spaces at an end, or two in a row")
        if not line.strip():
            family = None
            continue
        if line.startswith("#"):
            if families:
                errors.append(f"{place}: a comment below the first family")
            continue
        kind, separator, text = line.partition(": ")
        if kind not in KINDS or not separator or not text:
            errors.append(f"{place}: expected 'Q: ', 'H: ', 'A: ' or 'F: ' and a text")
            continue
        if family is None:
            family = Family(place)
            families.append(family)
        family.lines[kind].append(text)
    return families


def check_family(family, errors):
    def error(text):
        errors.append(f"{family.place}: {text}")

    count = {kind: len(family.lines[kind]) for kind in KINDS}
    if not MIN_Q <= count["Q"] <= MAX_Q:
        error(f"{count['Q']} Q, expected {MIN_Q} to {MAX_Q}")
    if count["H"] != HELD_OUT:
        error(f"{count['H']} H, expected {HELD_OUT}")
    if count["A"] != 1 or count["F"] != 1:
        error("expected one A and one F")
        return
    answer, facts = family.lines["A"][0], family.facts()
    if len(answer.split()) > MAX_WORDS:
        error(f"the answer has {len(answer.split())} words, at most {MAX_WORDS}")
    for fact in facts:
        if not fact or fact != fact.lower():
            error(f"fact {fact!r} is empty or not lower case")
    if not any(fact in answer.lower() for fact in facts):
        error(f"no fact of {facts} is in the answer")


# Families may share an answer (that of all questions beside the point), but not a question.
def check_duplicates(families, errors):
    seen, answers = {}, {}
    for family in families:
        asked = set()
        for text in family.lines["Q"] + family.lines["H"]:
            # "--dry-run" and "dry run" are two spellings, but must not belong to two families.
            for key in (text.lower(), " ".join(words(text)) or text):
                other = seen.setdefault(key, family)
                if other is not family or (key == text.lower() and key in asked):
                    errors.append(f"{family.place}: {text!r} is also asked at {other.place}")
                    break
            asked.add(text.lower())
        for answer in family.lines["A"]:
            other = answers.setdefault(answer, family)
            if other.facts() != family.facts():
                errors.append(f"{family.place}: the same answer as at {other.place}, other facts")


def near_misses(families):
    questions = [(q, family) for family in families for q in family.lines["Q"]]
    frequency = collections.Counter(word for q, _ in questions for word in set(words(q)))
    weight = {word: math.log(1 + len(questions) / n) for word, n in frequency.items()}
    index = collections.defaultdict(list)
    norms = []
    for i, (q, _) in enumerate(questions):
        norms.append(math.sqrt(sum(weight[word] ** 2 for word in set(words(q)))))
        for word in set(words(q)):
            index[word].append(i)
    for family in families:
        for held_out in family.lines["H"]:
            scores = collections.Counter()
            for word in set(words(held_out)):
                for i in index[word]:
                    scores[i] += weight[word] ** 2 / norms[i]
            best = max(scores, key=scores.get, default=None)
            if best is None:
                yield f"{family.place}: {held_out!r} shares no word with any Q"
            elif questions[best][1] is not family:
                other = questions[best][1]
                if not any(fact in other.lines["A"][0].lower() for fact in family.facts()):
                    yield (f"{family.place}: {held_out!r} is nearest to "
                           f"{questions[best][0]!r} ({other.place})")


def main(arguments):
    near = "--near" in arguments
    paths = [pathlib.Path(name) for name in arguments if name != "--near"]
    if not paths:
        root = pathlib.Path(__file__).resolve().parent.parent
        paths = sorted((root / "recipes/lumen-tiny").glob("*.txt"))
    errors, families = [], []
    for path in paths:
        families += read_families(path, errors)
    for family in families:
        check_family(family, errors)
    check_duplicates(families, errors)
    for error in errors:
        print(error)
    if near:
        for line in near_misses(families):
            print("near:", line)
    count = {kind: sum(len(family.lines[kind]) for family in families) for kind in KINDS}
    print(f"{len(paths)} files, {len(families)} families, {count['Q']} Q, {count['H']} H, "
          f"{len(errors)} errors")
    return 65 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
