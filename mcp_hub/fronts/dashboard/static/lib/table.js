// A table of any length: only the rows that can be seen, and a few more, are in the document. On a phone each row is a card,
// and so it is wherever the columns do not fit.
import { html, useEffect, useLayoutEffect, useMedia, useRef, useState } from './ui.js';

const ROW = 34, LINE = 24, EDGE = 21, MORE = 12, GAP = 18, LEAST = 50;
const PHONE = '(max-width: 720px)';

// columns: {key, title, width, right, sort, cell, card}; `card` is title, whole (a line of its own), line (one without a
// label), corner or none.
// Each row has one link, which takes the focus: j, k and Enter.
// `usual` names the order without a `sort`.
export function Table({ rows, columns, rowKey, label, empty, sort, onSort, usual, className = '' }) {
  const outer = useRef(null), body = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600, width: Infinity });
  const wanted = useRef(-1);
  const isCards = useMedia(PHONE) || view.width < needed(columns);
  const cells = isCards ? columns.filter((column) => column.card !== 'none') : columns;
  const row = isCards ? EDGE + LINE * lines(cells) : ROW;
  const measure = () => {
    const at = body.current;
    if (at) setView((old) => (old.top === at.scrollTop && old.height === at.clientHeight && old.width === outer.current.clientWidth ? old
      : { top: at.scrollTop, height: at.clientHeight, width: outer.current.clientWidth }));
  };
  useLayoutEffect(measure, []);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    observer.observe(body.current);
    observer.observe(outer.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / row) - MORE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / row) + MORE);
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
      if (to * row < at.scrollTop) at.scrollTop = to * row;
      else if ((to + 1) * row > at.scrollTop + at.clientHeight) at.scrollTop = (to + 1) * row - at.clientHeight;
      wanted.current = to;
      event.preventDefault();
      measure();
      focus(to);
    };
    document.addEventListener('keydown', move);
    return () => document.removeEventListener('keydown', move);
  }, [rows, row]);
  const style = { '--cols': columns.map((column) => column.width).join(' '), '--row': `${row}px` };
  return html`<div class="table ${isCards ? 'cards' : ''} ${className}" style=${style} ref=${outer}>
    ${isCards ? html`<${Sorts} ...${{ label, columns, sort, onSort, usual }} />` : null}
    <div class="table inner" role="table" aria-label=${label} aria-rowcount=${rows.length + 1}>
    ${isCards ? null : html`<div role="rowgroup"><div class="thead" role="row" aria-rowindex="1">${columns.map((column) => html`<${Head} key=${column.key} ...${{ column, sort, onSort, usual }} />`)}</div></div>`}
    <div class="tbody" role="rowgroup" tabindex="0" aria-label=${label} ref=${body} onScroll=${measure} onMouseOver=${reveal}>
      ${rows.length === 0 ? html`<div role="row"><div role="cell" class="empty">${empty}</div></div>` : null}
      <div role="presentation" style=${{ height: `${first * row}px` }}></div>
      ${rows.slice(first, last).map((one, at) => html`<div class="tr" role="row" key=${rowKey(one)} data-row=${first + at} aria-rowindex=${first + at + 2}>
        ${cells.map((column) => html`<${Cell} key=${column.key} ...${{ column, isCards, value: column.cell(one) }} />`)}</div>`)}
      <div role="presentation" style=${{ height: `${(rows.length - last) * row}px` }}></div>
    </div></div></div>`;
}

function Cell({ column: { card = '', right, title }, isCards, value }) {
  const hasLabel = isCards && title && !['title', 'line', 'corner'].includes(card);
  const isEmpty = value == null || value === '' || value.length === 0;
  return html`<div role="cell" class="${right ? 'right' : ''} ${isCards ? card : ''}">${hasLabel ? html`<span class="label">${title}</span>` : null}${hasLabel && isEmpty ? '–' : value}</div>`;
}

// The whole text of a cell that is cut, for the pointer.
function reveal({ target }) {
  const cell = target.closest('[role=cell]');
  if (cell && !cell.querySelector('[title]')) cell.title = cell.scrollWidth > cell.clientWidth ? cell.innerText : '';
}

// Pixels that the columns need side by side.
const needed = (columns) => columns.reduce((sum, { width }) => sum + (Number(/([1-9]\d*)px/.exec(width)?.[1]) || LEAST) + GAP, GAP);

// The lines of a card: two cells share one.
function lines(cells) {
  const halves = cells.filter((column) => !column.card).length;
  return cells.filter((column) => ['title', 'whole', 'line'].includes(column.card)).length + Math.ceil(halves / 2);
}

const isBy = (sort, key) => sort?.replace('-', '') === key;

function Sorts({ label, columns, sort, onSort, usual }) {
  const sortable = columns.filter((column) => column.sort);
  if (!sortable.length) return null;
  const id = `sort-${label.replace(/\W+/g, '-')}`;
  return html`<div class="sorts"><label for=${id}>Sort by</label><select id=${id} value=${sort ?? ''} onChange=${(event) => onSort(event.target.value)}>
    ${usual ? html`<option value="">${usual}</option>` : null}
    ${sortable.flatMap(({ key, title }) => [html`<option value=${key}>${title} ↑</option>`, html`<option value=${`-${key}`}>${title} ↓</option>`])}</select></div>`;
}

function Head({ column, sort, onSort, usual }) {
  if (!column.sort) return html`<div role="columnheader" class=${column.right ? 'right' : ''}>${column.title || html`<span class="hidden">${column.key}</span>`}</div>`;
  const is = isBy(sort, column.key), down = sort?.startsWith('-');
  const next = is && down && usual ? '' : is && !down ? `-${column.key}` : column.key;
  return html`<div role="columnheader" class=${column.right ? 'right' : ''} aria-sort=${is ? (down ? 'descending' : 'ascending') : 'none'}>
    <button type="button" onClick=${() => onSort(next)}>${column.title}${is ? (down ? ' ↓' : ' ↑') : ''}</button></div>`;
}
