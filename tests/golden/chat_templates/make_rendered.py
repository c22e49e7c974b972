#!/usr/bin/env python3
"""Renders the records of each NAME.json with NAME.jinja by jinja2 as transformers sets it up, and writes them back. Dates are 2026-07-26.

    python3 tests/golden/chat_templates/make_rendered.py       needs jinja2 (tests/requirements.txt)"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from jinja_as_transformers import environment, render  # noqa: E402

for path in sorted(HERE.glob("*.jinja")):
    template = environment().from_string(path.read_text(encoding="utf-8"))
    out = path.with_suffix(".json")
    records = [{key: value for key, value in record.items() if key not in ("text", "error")} for record in json.loads(out.read_text(encoding="utf-8"))]
    out.write_text(json.dumps([record | render(template, record) for record in records], ensure_ascii=False, indent=1), encoding="utf-8")
    print(f"{path.name}: {len(records)} records")
