"""The Jinja2 template of the parity page."""
from __future__ import annotations

PAGE = r"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --bg: #fff; --fg: #1b1f24; --soft: #59636e; --line: #d9dee3; --card: #f6f8fa; --good: #1a7f37; --bad: #cf222e; --warn: #9a6700;
  --refused: #8250df; --link: #0969da }
@media (prefers-color-scheme: dark) { :root { --bg: #0d1117; --fg: #e6edf3; --soft: #9198a1; --line: #30363d; --card: #161b22; --good: #3fb950; --bad: #da3633;
  --warn: #d29922; --refused: #ab7df8; --link: #4493f8 } }
* { box-sizing: border-box } [hidden] { display: none !important }
body { margin: 0 auto; padding: 24px; max-width: 1400px; font: 14px/1.45 system-ui, sans-serif; background: var(--bg); color: var(--fg) }
h1 { font-size: 22px; margin: 0 0 4px } p { margin: 0 0 16px; color: var(--soft) }
.sums { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px; margin-bottom: 16px }
.sums div { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px }
.sums b { display: block; font-size: 18px } .sums span { color: var(--soft); font-size: 12px }
.legend { display: grid; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); gap: 2px 24px; margin: 0 0 16px; font-size: 13px }
.legend div { display: flex; gap: 8px } .legend dt { flex: 0 0 64px; text-align: center } .legend dd { margin: 0; color: var(--soft) }
.tools { display: flex; gap: 8px; margin-bottom: 12px; flex-wrap: wrap; align-items: center }
input, select { font: inherit; padding: 5px 8px; border: 1px solid var(--line); border-radius: 6px; background: var(--bg); color: var(--fg) }
input { width: 280px; max-width: 100% }
@media (max-width: 900px) { .matrix { overflow-x: auto } }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th { position: sticky; top: 0; background: var(--card); text-align: left; font-weight: 600 }
th, td { padding: 1px 8px; border-bottom: 1px solid var(--line) } th { padding: 5px 8px } th.c, td.c { text-align: center; width: 80px }
td.n { font-family: ui-monospace, monospace; white-space: nowrap }
tbody tr:hover { background: var(--card) }
button { all: unset; box-sizing: border-box; cursor: pointer; border-radius: 4px }
td button { display: block; width: 100%; padding: 2px 0; text-align: center } td.left button { text-align: left; color: var(--soft); font-style: italic }
td button:hover { background: var(--line) } button:focus-visible { outline: 2px solid var(--link) }
.pass, .same { color: var(--good) } .fail { color: #fff; background: var(--bad); border-radius: 4px; padding: 0 6px } .differs { color: var(--warn) }
.refused { color: var(--refused) } .own, .none { color: var(--soft) } .none { font-weight: 900; font-size: 16px; line-height: 1 }
dialog { max-width: 900px; width: 90%; border: 1px solid var(--line); border-radius: 8px; background: var(--bg); color: var(--fg) }
dialog::backdrop { background: #0008 } dialog h2 { font: 600 16px ui-monospace, monospace; margin: 0 0 8px; overflow-wrap: anywhere } dialog p { margin: 0 0 8px }
pre { overflow: auto; max-height: 50vh; background: var(--card); padding: 12px; border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0 0 12px }
.buttons { display: flex; gap: 8px; justify-content: flex-end } .buttons button { border: 1px solid var(--line); padding: 4px 12px; border-radius: 6px }
</style>
<h1>{{ title }}</h1>
<p>Each row is a documented name, each column a check. Every cell opens and says what was checked, with which result, and how to repeat it: the scripts run as they are.</p>
<div class="sums">
{% for value, label in sums %}  <div><b>{{ value }}</b><span>{{ label }}</span></div>
{% endfor %}</div>
<dl class="legend">
{% for status, meaning in statuses.items() %}  <div><dt><span class="{{ status }}">{{ marks[status] }}</span></dt><dd>{{ meaning }}</dd></div>
{% endfor %}</dl>
<div class="tools">
  <input id="find" placeholder="Find a name" aria-label="Find a name">
  <select id="show" aria-label="Rows to show">
{% for value, label in filters %}    <option value="{{ value }}">{{ label }}</option>
{% endfor %}  </select>
  <span id="count" aria-live="polite"></span>
</div>
<div class="matrix"><table>
<thead><tr><th>name</th>{% for column in columns %}<th class="c" title="{{ columns[column].meaning }}">{{ column }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in rows %}<tr data-name="{{ row.name }}" data-has="{{ row.has }}"><td class="n">{{ row.name }}</td>
{%- if row.left_out %}<td class="left" colspan="{{ columns | length }}"><button>not run: {{ row.left_out }}</button></td>
{%- else %}{% for cell in row.cells %}<td class="c"><button data-c="{{ cell.column }}" aria-label="{{ cell.column }}: {{ cell.status }}">
{#- #}<span class="{{ cell.status }}">{{ cell.mark }}</span></button></td>{% endfor %}{% endif %}</tr>
{% endfor %}</tbody>
</table></div>
<dialog aria-labelledby="heading">
  <h2 id="heading"></h2>
  <p id="meaning"></p>
  <p id="status"></p>
  <pre id="detail"></pre>
  <pre id="script"></pre>
  <form method="dialog" class="buttons"><button type="button" id="copy">Copy the script</button><button autofocus>Close</button></form>
</dialog>
<script>
const details = {{ details | tojson }}, columns = {{ columns | tojson }}, statuses = {{ statuses | tojson }};
const get = id => document.getElementById(id), rows = [...document.querySelectorAll('tbody tr')], dialog = document.querySelector('dialog');
function filter() {
  const words = get('find').value.toLowerCase(), show = get('show').value;
  let count = 0;
  for (const row of rows) {
    const visible = row.dataset.name.toLowerCase().includes(words) && (!show || row.dataset.has.split(' ').includes(show));
    row.hidden = !visible;
    count += visible;
  }
  get('count').textContent = count + ' names';
}
get('find').oninput = get('show').onchange = filter;
filter();
function put(id, text) { get(id).textContent = text; get(id).hidden = !text; }
function open(name, column) {
  const row = details[name], cell = column ? row.cells[column] || {status: 'none'} : {status: 'none', detail: 'Not run: ' + row.left_out};
  const script = cell.script || (column && cell.status !== 'none' && row.scripts[columns[column].script]) || '';
  put('heading', column ? name + ' [' + column + ']' : name);
  put('meaning', column ? columns[column].meaning : '');
  put('status', column ? (cell.status === 'none' ? 'Not checked: ' + columns[column].none : 'Result: ' + statuses[cell.status]) + '.' : '');
  put('detail', cell.detail || '');
  put('script', script);
  get('copy').hidden = !script;
  dialog.showModal();
}
document.querySelector('tbody').onclick = event => {
  const button = event.target.closest('button');
  if (button) open(button.closest('tr').dataset.name, button.dataset.c);
};
get('copy').onclick = () => navigator.clipboard.writeText(get('script').textContent);
dialog.onclick = event => { if (event.target === dialog) dialog.close(); };
if (location.hash) open(...decodeURIComponent(location.hash.slice(1)).split('|'));
</script>
</html>
"""
