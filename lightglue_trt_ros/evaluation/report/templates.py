"""Pages from their templates: every value is escaped, and all pages have the report's look."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

REPORT = Path(__file__).with_name('report.html.jinja')


def rendered(template: Path, **values: Any) -> str:
    """The page that a Jinja2 template makes of `values`, and of `style`, the report's."""
    from jinja2 import Environment, StrictUndefined
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    style = ''.join(re.findall(r'<style>\n(.*?)</style>', REPORT.read_text(encoding='utf-8'), re.S))
    return environment.from_string(template.read_text(encoding='utf-8')).render(style=style, **values)
