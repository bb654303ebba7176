"""A page of HTML, checked and taken apart."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {'meta', 'link', 'img', 'br', 'hr', 'input', 'wbr'}


class Page(HTMLParser):
    """Checks that all elements are closed in order; gathers text, tags, links, texts of table rows, and what could be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ''
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.rows: list[str] = []
        self.sources: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or '' for name, value in attrs if name == 'href' and tag == 'a']
        self.sources += [value or '' for name, value in attrs if name in ('src', 'href', 'srcset', 'action', 'data')]
        assert not any(name.startswith('on') for name, _ in attrs)
        self.rows += [''] * (tag == 'tr')
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if 'tr' in self.open:
            self.rows[-1] += data.strip() + ' '
