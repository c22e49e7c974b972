"""jinja2 set up as transformers does it for chat templates (render_jinja_template in transformers/utils/chat_template_utils.py):
what tests compare with. The time is fixed, so that what a template writes doesn't change."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 7, 26)


class Generation(jinja2.ext.Extension):
    """{% generation %}: transformers marks what is inside, and writes it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller):
        return caller()


def environment(now=NOW):
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = now.strftime
    return made


def render(template, record):
    """{"text"} or {"error"} of a record: messages, tools, documents, add_generation_prompt, bos, eos, chat_template_kwargs."""
    try:
        return {"text": template.render(messages=record["messages"], tools=record.get("tools"), documents=record.get("documents"),
                                        add_generation_prompt=record["add_generation_prompt"], bos_token=record["bos"], eos_token=record["eos"],
                                        **record.get("chat_template_kwargs", {}))}
    except Exception as error:  # the template itself refuses, or Python does
        return {"error": str(error)}
