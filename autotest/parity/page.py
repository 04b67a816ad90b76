"""The matrix as one self-contained HTML page."""
from __future__ import annotations

import html
import json
from pathlib import Path

from .table import COLUMNS, counts, status

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1b1f24; --soft: #6a737d; --line: #e1e4e8; --head: #f6f8fa; --card: #f6f8fa }
@media (prefers-color-scheme: dark) { :root { --bg: #0d1117; --fg: #e6edf3; --soft: #8b949e; --line: #30363d; --head: #161b22; --card: #161b22 } }
* { box-sizing: border-box } body { margin: 0; padding: 24px; font: 14px/1.45 system-ui, sans-serif; background: var(--bg); color: var(--fg) }
h1 { font-size: 20px; margin: 0 0 4px } p { margin: 0 0 16px; color: var(--soft) }
.sums { display: flex; gap: 10px; flex-wrap: wrap; margin-bottom: 16px } .sums div { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px }
.sums b { display: block; font-size: 18px } .sums span { color: var(--soft); font-size: 12px }
.tools { display: flex; gap: 8px; margin-bottom: 12px; flex-wrap: wrap } input, select { font: inherit; padding: 5px 8px; border: 1px solid var(--line); border-radius: 6px; background: var(--bg); color: var(--fg) }
input { width: 280px } table { border-collapse: collapse; width: 100%; font-size: 13px } th { position: sticky; top: 0; background: var(--head); text-align: left; font-weight: 600 }
th.c { text-align: center } .tools { align-items: center } th, td { padding: 3px 8px; border-bottom: 1px solid var(--line) } td.c { text-align: center; width: 84px } td.n { font-family: ui-monospace, monospace; white-space: nowrap }
.pass, .same { color: #1a7f37 } .fail { color: #fff; background: #cf222e; border-radius: 4px; padding: 0 6px } .differs { color: #9a6700 } .refused { color: #8250df } .own { color: var(--soft) } .none { color: var(--line) }
button { all: unset; cursor: pointer } button:focus-visible { outline: 2px solid #0969da } .left { color: var(--soft); font-style: italic }
dialog { max-width: 900px; width: 90%; border: 1px solid var(--line); border-radius: 8px; background: var(--bg); color: var(--fg) } pre { overflow: auto; background: var(--card); padding: 12px; border-radius: 6px; white-space: pre-wrap }
"""

SCRIPT = """
const rows = [...document.querySelectorAll('tbody tr')], find = document.querySelector('#find'), show = document.querySelector('#show'), count = document.querySelector('#count');
function filter() {
  const words = find.value.toLowerCase(); let n = 0;
  for (const r of rows) { const ok = r.dataset.name.includes(words) && (!show.value || r.dataset.has.includes(show.value)); r.hidden = !ok; n += ok }
  count.textContent = n + ' names';
}
find.oninput = show.onchange = filter; filter();
const box = document.querySelector('dialog');
document.querySelector('tbody').onclick = e => {
  const b = e.target.closest('button'); if (!b) return;
  const d = details[b.dataset.k]; box.querySelector('h2').textContent = b.dataset.k;
  box.querySelector('#detail').textContent = d[0] || d[1]; box.querySelector('#script').textContent = d[2]; box.querySelector('#script').hidden = !d[2]; box.showModal();
};
"""

MARK = {"pass": "✓", "same": "≡", "own": "own", "fail": "fails", "differs": "differs", "refused": "refused", "none": "·"}


def write(rows, path, title="parity"):
    details, body = {}, []
    for row in rows:
        cells = []
        for column in COLUMNS:
            what = status(row, column)
            cell = row["cells"].get(column, {})
            mark = MARK[what]
            if column == "dtypes" and row.get("dtypes") and what == "pass":
                mark = str(len(row["dtypes"]))
                cell = {**cell, "detail": ", ".join(row["dtypes"])}
            label = f'<span class="{what}">{mark}</span>'
            if cell.get("detail") or cell.get("script"):
                key = f"{row['name']} [{column}]"
                details[key] = [cell.get("detail", ""), what, cell.get("script", "")]
                label = f'<button data-k="{html.escape(key, quote=True)}" title="{html.escape(what)}">{label}</button>'
            cells.append(f'<td class="c">{label}</td>')
        has = " ".join({status(row, c) for c in COLUMNS} | ({"left"} if row["left_out"] else set()))
        if row["left_out"]:
            cells = [f'<td class="left" colspan="{len(COLUMNS)}">left out: {html.escape(row["left_out"])}</td>']
        body.append(f'<tr data-name="{html.escape(row["name"].lower(), quote=True)}" data-has="{has}"><td class="n">{html.escape(row["name"])}</td>{"".join(cells)}</tr>')
    by_column, ran = counts(rows)
    sums = [f"<div><b>{ran} / {len(rows)}</b><span>names run</span></div>"]
    for column in COLUMNS:
        c = by_column[column]
        good, all_ = c.get("pass", 0) + c.get("same", 0), sum(n for s, n in c.items() if s != "none")
        extra = "".join(f", {c[s]} {s}" for s in ("fail", "differs", "refused") if c.get(s))
        if all_:
            sums.append(f"<div><b>{good} / {all_}</b><span>{'the same object' if column == 'identity' else column}{extra}</span></div>")
    heads = "".join(f'<th class="c">{c}</th>' for c in COLUMNS)
    options = "".join(f'<option value="{v}">{t}</option>' for v, t in (
        ("", "all names"), ("fail", "failing"), ("differs", "documented differences"), ("refused", "refused as a graph"), ("left", "left out")))
    Path(path).write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><p>✓ agrees &nbsp; ≡ the very same object as torch's, own: a function of ours &nbsp; differs: a documented difference &nbsp; refused: the library says that it cannot. "
        f"Click a cell for the detail and the script that repeats it.</p><div class=sums>{''.join(sums)}</div>"
        f"<div class=tools><input id=find placeholder='find a name' aria-label='find a name'><select id=show aria-label='show'>{options}</select><span id=count></span></div>"
        f"<table><thead><tr><th>name</th>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"
        f"<dialog><h2></h2><pre id=detail></pre><pre id=script></pre><form method=dialog><button>close</button></form></dialog>"
        f"<script>const details = {json.dumps(details).replace('</', '<' + chr(92) + '/')};{SCRIPT}</script>")
