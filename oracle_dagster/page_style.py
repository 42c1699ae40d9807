"""How the pages that are written to a file look: one style sheet, inside each of them."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Helvetica Neue", Arial, sans-serif; color: #1d2430; background: #f5f6f8;
  margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 0 0 10px; }
section, header { background: #fff; border: 1px solid #e2e5ea; border-radius: 10px; padding: 18px 22px;
  margin: 0 0 16px; overflow-x: auto; }
p { margin: 0 0 8px; max-width: 92ch; }
p.dim { color: #667; font-weight: 600; margin-top: 14px; }
p.bold { font-weight: 600; }
.cards { display: flex; flex-wrap: wrap; gap: 8px; margin: 14px 0; }
.card { border: 1px solid #e2e5ea; border-radius: 8px; padding: 8px 12px; min-width: 82px; }
.card b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; }
.card span { color: #667; font-size: 12.5px; }
.card.act b { color: #2a6fb0; } .card.defer b { color: #c0562b; }
table { border-collapse: collapse; font-size: 13.5px; font-variant-numeric: tabular-nums; margin: 0 0 10px; }
th { text-align: left; color: #667; font-weight: 600; padding: 3px 14px 5px 0; white-space: nowrap; }
td { padding: 3px 14px 3px 0; border-top: 1px solid #eef0f3; vertical-align: top; }
th.right, td.right { text-align: right; }
tr.no td:last-child { color: #667; } tr.fails td { background: #fdf0ea; }
tr.fails td:last-child { color: #b3421a; font-weight: 600; }
svg { width: 100%; height: auto; display: block; }
figure { margin: 0; } figcaption { color: #667; font-size: 13px; margin: 0 0 6px; }
"""
