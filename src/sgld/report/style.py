"""The page around the content: one template and its style sheet, nothing from elsewhere."""

from __future__ import annotations

from string import Template

from .canvas import COLOURS

__all__ = ["PAGE"]

DARK = {
    "ink": "#e4e9ef",
    "muted": "#9aa7b5",
    "line": "#35404d",
    "accent": "#6fb0f2",
    "accent-soft": "#35597f",
    "contrast": "#ff9a5c",
    "shade": "#222b36",
    "paper": "#161c24",
    "chain-0": "#6fb0f2",
    "chain-1": "#f0965a",
    "chain-2": "#6cc293",
    "chain-3": "#d38fcb",
    "chain-4": "#e3b95a",
    "chain-5": "#86c0cf",
}
# words of the verdict; the same names are classes of the banner
LIGHT_WORDS = "--good: #1b7a43; --bad: #b3261e; --warn: #9a5b00; --doubt: #4a5a8a; --miss: #fde2d4;"
DARK_WORDS = "--good: #6fd399; --bad: #ff8a80; --warn: #f5bf5b; --doubt: #a9b8ea; --miss: #5a2f1c;"


def _page_variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


_PAGE_LIGHT = f"{_page_variables(COLOURS)} {LIGHT_WORDS} color-scheme: light;"
_PAGE_DARK = f"{_page_variables(DARK)} {DARK_WORDS} color-scheme: dark;"

_STYLE = f"""
:root {{ {_PAGE_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_PAGE_DARK} }} }}
""" + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.25rem clamp(.9rem, 3vw, 2rem) 3rem; max-width: 1160px;
  background: var(--paper); color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.15rem; font-weight: 600; margin: 0 0 .9rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .4rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
p.note, footer, figcaption { color: var(--muted); font-size: .875rem; }
code { font: .92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.banner { border: 1px solid var(--line); border-left: .5rem solid var(--word); border-radius: .5rem;
  padding: .9rem 1.2rem 1rem; background: var(--shade); }
.banner .word { color: var(--word); font-size: clamp(2rem, 7vw, 3rem); font-weight: 700;
  line-height: 1.1; margin: 0 0 .4rem; }
.banner ul { margin: .3rem 0; padding-left: 1.2rem; max-width: 46rem; }
.banner p.only { font-size: 1.05rem; }
.trusted { --word: var(--good); } .biased { --word: var(--bad); }
.not-mixed { --word: var(--warn); } .unknown { --word: var(--doubt); }
.pair { display: grid; gap: 1.2rem 2.5rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem 1rem; margin: 0; }
dt { color: var(--muted); } dd { margin: 0; }
dd ul { margin: 0; padding: 0; list-style: none; }
.scroll { overflow-x: auto; margin: .6rem 0; overflow-wrap: normal; }
/* a shade at the right edge while columns are hidden there: the cover scrolls along, the shade does not */
.scroll { background: linear-gradient(to left, var(--paper) 50%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat scroll; }
p.narrow { display: none; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; width: 100%; }
th, td { text-align: right; padding: .26rem .42rem; white-space: nowrap; border-bottom: 1px solid var(--line); }
thead th { white-space: normal; color: var(--muted); font-weight: 600; vertical-align: bottom; border-bottom: 2px solid var(--line); }
tbody th, thead th:first-child { text-align: left; font-weight: 600; position: sticky; left: 0;
  background: var(--paper); max-width: 15rem; overflow: hidden; text-overflow: ellipsis; white-space: normal; }
td.miss { background: var(--miss); font-weight: 700; }
td.miss::after { content: "\\2009!"; }
td.none { color: var(--muted); }
.panels { display: grid; gap: .9rem 1.4rem; margin-top: .7rem; justify-content: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 19.5rem), 1fr)); }
.panels.wide { grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
.panels svg { width: 100%; max-width: 27rem; height: auto; display: block; }
.panels.wide svg { max-width: 29rem; }
svg text { font-family: inherit; }
img { max-width: 100%; }
.key { display: inline-block; width: 1.1em; height: .7em; margin-right: .25em; vertical-align: baseline; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: .7rem; }
@media (max-width: 480px) { body { font-size: 15px; } h2 { margin-top: 1.8rem; }
  dl { grid-template-columns: 7.6rem minmax(0, 1fr); gap: .15rem .7rem; }
  tbody th { min-width: 7.5rem; max-width: 8rem; } }
@media screen and (max-width: 900px) { p.narrow { display: block; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } .scroll { overflow: visible; }
  table { font-size: 7pt; } th, td { padding: .1rem .25rem; }
  .panels { grid-template-columns: repeat(3, 1fr); } .panels.wide { grid-template-columns: repeat(2, 1fr); }
  svg, tr, .banner { break-inside: avoid; } h2 { break-after: avoid; }
  .banner, td.miss, .key, svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""  # fmt: skip

PAGE = Template(
    f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>{_STYLE.replace("$", "$$")}</style>
</head>
<body>
<main>
$content
</main>
<footer>$footer</footer>
</body>
</html>
"""
)
