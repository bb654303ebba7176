"""Small SVG pictures that are light or dark as the reader's system is, and readable at 420 pixels."""

from __future__ import annotations

from html import escape

WIDTH = 420  # units, and pixels on a telephone
STYLE = """text{font:14px system-ui,sans-serif;fill:#1f2328}.small{font-size:13px}.bold{font-weight:600}.soft{fill:#59636e}
.paper{fill:#fff}.box{fill:#f6f8fa;stroke:#8c959f}.gpu{fill:#ddf4e4;stroke:#1a7f37}.grid{stroke:#d1d9e0}.axis{stroke:#59636e}
.arrow{stroke:#59636e;fill:none;stroke-width:1.5}.head{fill:#59636e}.c0{fill:#0072b2;stroke:#0072b2}.c1{fill:#56b4e9;stroke:#56b4e9}
.c2{fill:#e69f00;stroke:#e69f00}.c3{fill:#cc79a7;stroke:#cc79a7}.c4{fill:#009e73;stroke:#009e73}
.open{fill:none}.bar{stroke:none}.dashed{stroke-dasharray:4 3}
@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.soft{fill:#9198a1}.paper{fill:#0d1117}.box{fill:#212830;stroke:#656c76}
.gpu{fill:#12381f;stroke:#3fb950}.grid{stroke:#3d444d}.axis{stroke:#9198a1}.arrow{stroke:#9198a1}.head{fill:#9198a1}
.c0{fill:#2f8fd8;stroke:#2f8fd8}.c1{fill:#b3dcf7;stroke:#b3dcf7}.open{fill:none}}"""


class Svg:
    """Elements from the back to the front."""

    def __init__(self, title: str, height: float, width: float = WIDTH) -> None:
        self.size = width, height
        self.title = title
        self.parts = [f'<rect class="paper" width="{width:g}" height="{height:g}"/>']

    def add(self, name: str, kind: str, **values: float | str) -> None:
        texts = {key.replace('_', '-'): value if isinstance(value, str) else f'{value:.4g}' for key, value in values.items()}
        words = ' '.join(f'{key}="{text}"' for key, text in texts.items())
        self.parts.append(f'<{name} class="{kind}" {words}/>')

    def text(self, x: float, y: float, text: str, kind: str = '', anchor: str = 'start') -> None:
        at = '' if anchor == 'start' else f' text-anchor="{anchor}"'
        self.parts.append(f'<text class="{kind}" x="{x:.4g}" y="{y:.4g}"{at}>{escape(text)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, width: float = 1) -> None:
        self.add('line', kind, x1=x1, y1=y1, x2=x2, y2=y2, stroke_width=width)

    def box(self, x: float, y: float, width: float, height: float, lines: str, kind: str = 'box') -> None:
        """A rectangle with centred lines of text; the first is bold, the others are soft."""
        self.add('rect', kind, x=x, y=y, width=width, height=height, rx=6)
        texts = lines.split('\n')
        top = y + height / 2 - 8 * (len(texts) - 1) + 5
        for number, text in enumerate(texts):
            self.text(x + width / 2, top + 16 * number, text, 'bold' if number == 0 else 'small soft', 'middle')

    def arrow(self, *points: float) -> None:
        """Along the points x, y, x, y …, with a head at the last one."""
        path = [(points[i], points[i + 1]) for i in range(0, len(points), 2)]
        (x0, y0), (x, y) = path[-2:]
        length = max(((x - x0) ** 2 + (y - y0) ** 2) ** 0.5, 1e-9)
        dx, dy = (x - x0) / length, (y - y0) / length
        self.add('polyline', 'arrow', points=' '.join(f'{px:.4g},{py:.4g}' for px, py in [*path[:-1], (x - 5 * dx, y - 5 * dy)]))
        head = [(x, y), (x - 8 * dx - 4 * dy, y - 8 * dy + 4 * dx), (x - 8 * dx + 4 * dy, y - 8 * dy - 4 * dx)]
        self.add('polygon', 'head', points=' '.join(f'{px:.4g},{py:.4g}' for px, py in head))

    def legend(self, x: float, y: float, names: list[tuple[str, str]], step: float | None = None) -> None:
        """Colours and their names, in a row."""
        for kind, name in names:
            self.add('rect', f'{kind} bar', x=x, y=y - 10, width=11, height=11)
            self.text(x + 16, y, name, 'small')
            x += step or 30 + 7.4 * len(name)

    def __str__(self) -> str:
        width, height = self.size
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{1.5 * width:g}" role="img">\n'
                f'<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n' + '\n'.join(self.parts) + '\n</svg>\n')
