// A table of any length: only the rows that can be seen, and a few more, are in the document.
import { html, useEffect, useLayoutEffect, useRef, useState } from './ui.js';

const ROW = 34, MORE = 6;

// columns: {key, title, width, right, sort, cell}. Each row has one link, which takes the focus: j, k and Enter.
export function Table({ rows, columns, rowKey, label, empty, sort, onSort, className = '' }) {
  const body = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const wanted = useRef(-1);
  const measure = () => {
    const at = body.current;
    if (at) setView((old) => (old.top === at.scrollTop && old.height === at.clientHeight ? old : { top: at.scrollTop, height: at.clientHeight }));
  };
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(body.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / ROW) - MORE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + MORE);
  const focus = (index) => body.current.querySelector(`[data-row="${index}"] a, [data-row="${index}"] button`)?.focus();
  useLayoutEffect(() => {
    if (wanted.current >= first && wanted.current < last) { focus(wanted.current); wanted.current = -1; }
  });
  useEffect(() => {
    const move = (event) => {
      const step = { j: 1, k: -1 }[event.key];
      if (!step || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select')) return;
      if (!body.current || !rows.length) return;
      const here = document.activeElement?.closest('[data-row]');
      const from = here && body.current.contains(here) ? Number(here.dataset.row) : -1;
      const to = Math.max(0, Math.min(rows.length - 1, from < 0 ? 0 : from + step));
      const at = body.current;
      if (to * ROW < at.scrollTop) at.scrollTop = to * ROW;
      else if ((to + 1) * ROW > at.scrollTop + at.clientHeight) at.scrollTop = (to + 1) * ROW - at.clientHeight;
      wanted.current = to;
      event.preventDefault();
      measure();
      focus(to);
    };
    document.addEventListener('keydown', move);
    return () => document.removeEventListener('keydown', move);
  }, [rows]);
  const cols = { '--cols': columns.map((column) => column.width).join(' ') };
  return html`<div class="table ${className}" role="table" aria-label=${label} aria-rowcount=${rows.length + 1} style=${cols}>
    <div role="rowgroup"><div class="thead" role="row" aria-rowindex="1">${columns.map((column) => html`<${Head} key=${column.key} ...${{ column, sort, onSort }} />`)}</div></div>
    <div class="tbody" role="rowgroup" tabindex="0" aria-label=${label} ref=${body} onScroll=${measure}>
      ${rows.length === 0 ? html`<div role="row"><div role="cell" class="empty">${empty}</div></div>` : null}
      <div role="presentation" style=${{ height: `${first * ROW}px` }}></div>
      ${rows.slice(first, last).map((row, at) => html`<div class="tr" role="row" key=${rowKey(row)} data-row=${first + at} aria-rowindex=${first + at + 2}>
        ${columns.map((column) => html`<div role="cell" key=${column.key} class=${column.right ? 'right' : ''}>${column.cell(row)}</div>`)}</div>`)}
      <div role="presentation" style=${{ height: `${(rows.length - last) * ROW}px` }}></div>
    </div></div>`;
}

function Head({ column, sort, onSort }) {
  if (!column.sort) return html`<div role="columnheader" class=${column.right ? 'right' : ''}>${column.title || html`<span class="hidden">${column.key}</span>`}</div>`;
  const is = sort?.replace('-', '') === column.key, down = sort?.startsWith('-');
  return html`<div role="columnheader" class=${column.right ? 'right' : ''} aria-sort=${is ? (down ? 'descending' : 'ascending') : 'none'}>
    <button type="button" onClick=${() => onSort(is && !down ? `-${column.key}` : column.key)}>${column.title}${is ? (down ? ' ↓' : ' ↑') : ''}</button></div>`;
}
