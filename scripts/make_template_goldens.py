#!/usr/bin/env python3
"""Renders the cases of testdata/templates/cases.json with Python jinja2, configured as transformers'
apply_chat_template configures it, and writes what it gave to testdata/templates/goldens.json.

Usage: make_template_goldens.py   (needs jinja2 3.1)
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "templates"
NOW = datetime.datetime(2025, 7, 10, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %}: its content, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("content"), [], [], body).set_lineno(line)

    def content(self, caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment(trim_blocks, lstrip_blocks):
    env = ImmutableSandboxedEnvironment(trim_blocks=trim_blocks, lstrip_blocks=lstrip_blocks,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = to_json
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


def outcome(template, variables, blocks):
    try:
        return {"text": environment(blocks, blocks).from_string(template).render(variables)}
    except Exception as error:
        return {"error": type(error).__name__}


def main():
    cases = json.loads((FOLDER / "cases.json").read_text())
    rows = []
    for template in ["{{ " + e + " }}" for e in cases["expressions"]] + cases["templates"]:
        for blocks in (True, False) if "\n" in template else (True,):
            variables = json.loads(json.dumps(cases["variables"]))
            result = outcome(template, variables, blocks)
            if " at 0x" not in result.get("text", ""):  # an address differs in every run
                rows.append({"template": template, "blocks": blocks, **result})
    goldens = {"made_by": "scripts/make_template_goldens.py",
               "versions": {"python": sys.version.split()[0], "jinja2": jinja2.__version__},
               "now": NOW.isoformat(), "variables": cases["variables"], "cases": rows}
    lines = json.dumps(goldens, ensure_ascii=True, indent=0)
    (FOLDER / "goldens.json").write_text(lines + "\n")
    print(len(rows), "cases")


if __name__ == "__main__":
    main()
