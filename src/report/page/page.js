// The search graph of a run: drawn on a canvas, walked with the keyboard, read in the panel beside it. All
// texts go in as text nodes. Nothing is fetched.
"use strict";
(() => {
const facts = JSON.parse(document.getElementById("facts").textContent);
const canvas = document.getElementById("canvas");
const tree = document.getElementById("tree");
const detail = document.getElementById("detail");
const find = document.getElementById("find");
const withKernels = document.getElementById("kernels");
const ROW = 22, COLUMN = 250, GLYPH = 6;
const LOOKS = {
  best: "winner", good: "valid", wrong: "wrong or racy", crashed: "faulted or hung",
  refused: "not assembled or over limits", voided: "voided by the audit", empty: "nothing judged",
};
document.documentElement.classList.add("script");

// --- the tree: task, sources, kernels, proposals that came to nothing ---

function item(kind, of, parent, label, look, time) {
  const made = {kind, of, parent, label, look, time, children: [], open: true, way: false, id: items.length};
  items.push(made);
  if (parent) parent.children.push(made);
  return made;
}
const items = [];
const root = item("task", null, null, document.querySelector("h1").textContent, "empty", "");
root.way = true;
const byNode = new Map();
for (const source of facts.sources) {
  const parent = byNode.get(source.parents[0]) || root;
  const made = item("source", source, parent, source.label, source.look, source.best || "");
  made.way = source.way;
  byNode.set(source.node, made);
}
for (const failure of facts.failures) {
  item("failure", failure, byNode.get(failure.node) || root, "no usable proposal", "empty", "");
}
for (const kernel of facts.kernels) {
  const made = item("kernel", kernel, byNode.get(kernel.node) || root, "#" + kernel.number + " " + kernel.label, kernel.look, kernel.time || "");
  made.way = kernel.look === "best";
}
withKernels.checked = items.length <= 80;

// --- layout: leaves in rows of their own, a source between the sources that grew from it or beside its first
// kernel ---

let shown = [];    // in the order of a walk: what the arrow keys go through
let height = 0;
function isShown(one) { return one.kind !== "kernel" || withKernels.checked; }
function layOut() {
  shown = [];
  let row = 0;
  const stack = [[root, 0]];
  while (stack.length) {
    const [one, depth] = stack.pop();
    one.x = depth * COLUMN;
    one.position = shown.length;
    shown.push(one);
    one.inside = one.open ? one.children.filter(isShown) : [];
    one.expandable = one.children.some(isShown);
    if (one.inside.length === 0) one.y = row++ * ROW;
    for (let nth = one.inside.length - 1; nth >= 0; nth--) stack.push([one.inside[nth], depth + 1]);
  }
  for (let nth = shown.length - 1; nth >= 0; nth--) {
    const inside = shown[nth].inside;
    if (!inside.length) continue;
    const grown = inside.filter(one => one.kind !== "kernel");
    shown[nth].y = grown.length ? (grown[0].y + grown[grown.length - 1].y) / 2 : inside[0].y;
  }
  height = row * ROW;
}

// --- drawing ---

const view = {x: 24, y: 24, scale: 1};
let selected = root, colours = {}, waiting = false;
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ground", "ink", "muted", "grid", "series2", ...Object.keys(LOOKS)]) {
    colours[name] = style.getPropertyValue("--" + name).trim();
  }
}
function draw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(paint);
}
function fitCanvas() {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  return ratio;
}
function glyph(pen, look, x, y, size) {
  pen.beginPath();
  switch (look) {
    case "best":
      for (let nth = 0; nth < 10; nth++) {
        const radius = nth % 2 ? size * 0.55 : size * 1.25, angle = Math.PI * (nth / 5 - 0.5);
        pen.lineTo(x + radius * Math.cos(angle), y + radius * Math.sin(angle));
      }
      break;
    case "wrong":
      pen.moveTo(x, y - size); pen.lineTo(x + size, y + size * 0.8); pen.lineTo(x - size, y + size * 0.8);
      break;
    case "crashed": pen.rect(x - size * 0.85, y - size * 0.85, size * 1.7, size * 1.7); break;
    case "refused":
      pen.moveTo(x, y - size); pen.lineTo(x + size, y); pen.lineTo(x, y + size); pen.lineTo(x - size, y);
      break;
    case "voided": {
      const a = size * 0.9, b = size * 0.35;
      for (const [dx, dy] of [[-a, -b], [-b, -b], [-b, -a], [b, -a], [b, -b], [a, -b], [a, b], [b, b], [b, a], [-b, a], [-b, b], [-a, b]]) {
        pen.lineTo(x + dx, y + dy);
      }
      break;
    }
    default: pen.arc(x, y, size * 0.9, 0, 2 * Math.PI);
  }
  pen.closePath();
  if (look === "empty") {
    pen.fillStyle = colours.ground; pen.fill();
    pen.strokeStyle = colours.empty; pen.lineWidth = 1.5; pen.stroke();
  } else {
    pen.fillStyle = colours[look]; pen.fill();
  }
}
function paint() {
  waiting = false;
  const ratio = fitCanvas(), pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  pen.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
  const top = -view.y / view.scale - ROW, bottom = (canvas.clientHeight - view.y) / view.scale + ROW;
  const left = -view.x / view.scale - COLUMN, right = (canvas.clientWidth - view.x) / view.scale;
  const seen = one => one.y >= top && one.y <= bottom && one.x >= left && one.x <= right;
  for (const way of [false, true]) {
    pen.beginPath();
    for (const one of shown) {
      const parent = one.parent;
      if (!parent || one.way !== way) continue;
      if (Math.max(one.y, parent.y) < top || Math.min(one.y, parent.y) > bottom) continue;
      if (one.x < left || parent.x > right) continue;
      const from = view.scale < 0.5 ? parent.x + GLYPH : one.x - 44, to = one.x - GLYPH - 3;
      pen.moveTo(from, parent.y);
      if (one.y === parent.y || view.scale < 0.5) pen.lineTo(to, one.y);
      else pen.bezierCurveTo(from + 22, parent.y, from + 14, one.y, to, one.y);
    }
    pen.strokeStyle = way ? colours.best : colours.grid;
    pen.lineWidth = (way ? 2.5 : 1.2) / Math.min(1, Math.max(view.scale, 0.4));
    pen.stroke();
  }
  const words = view.scale >= 0.5, small = new Map();
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (const one of shown) {
    if (!seen(one)) continue;
    if (one === selected) {
      pen.fillStyle = colours.grid;
      pen.fillRect(one.x - 11, one.y - 10, COLUMN - 36, 20);
      pen.strokeStyle = colours.series2; pen.lineWidth = 2;
      pen.strokeRect(one.x - 11, one.y - 10, COLUMN - 36, 20);
    }
    if (!words) {
      const alike = small.get(one.look);
      if (alike) alike.push(one); else small.set(one.look, [one]);
      continue;
    }
    glyph(pen, one.look, one.x, one.y, GLYPH);
    pen.textAlign = "left";
    pen.fillStyle = one.kind === "kernel" ? colours.muted : colours.ink;
    const closed = one.expandable && !one.open;
    const room = one.time ? 20 : 29;
    let label = (closed ? "▸ " : "") + one.label;
    if (label.length > room) label = label.slice(0, room - 1).trimEnd() + "…";
    pen.fillText(label, one.x + 11, one.y);
    if (one.time) {
      pen.textAlign = "right";
      pen.fillStyle = colours.muted;
      pen.fillText(one.time, one.x + COLUMN - 50, one.y);
    }
  }
  // from afar a node is a square of its colour, and all of one colour are one path
  const side = 4 / Math.max(view.scale, 0.06);
  for (const [look, alike] of small) {
    pen.beginPath();
    for (const one of alike) pen.rect(one.x - side / 2, one.y - side / 2, side, side);
    pen.fillStyle = colours[look];
    pen.fill();
  }
}
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = Math.min(4, Math.max(0.02, view.scale * factor));
  view.x = x - (x - view.x) * scale / view.scale;
  view.y = y - (y - view.y) * scale / view.scale;
  view.scale = scale;
  draw();
}
function fit() {
  const wide = shown.reduce((most, one) => Math.max(most, one.x), 0) + COLUMN;
  const room = 34;
  view.scale = Math.min(1, (canvas.clientWidth - 20) / wide, (canvas.clientHeight - room - 16) / Math.max(height, ROW));
  view.x = 20;
  view.y = Math.max(20, (canvas.clientHeight - room - height * view.scale) / 2);
  draw();
}
function reveal(one) {
  const x = one.x * view.scale + view.x, y = one.y * view.scale + view.y;
  const width = COLUMN * view.scale;
  if (x < 12) view.x += 12 - x;
  else if (x + width > canvas.clientWidth) view.x -= Math.min(x - 12, x + width - canvas.clientWidth);
  if (y < 24) view.y += 24 - y;
  else if (y > canvas.clientHeight - 48) view.y -= y - (canvas.clientHeight - 48);
}

// --- what a screen reader hears: the selected item and those around it ---

function says(one) {
  const parts = [one.label];
  if (one.kind === "kernel") parts.push(one.of.stage);
  else if (one.kind === "source") parts.push(LOOKS[one.look], one.of.judged + " judged");
  if (one.time) parts.push(one.time);
  return parts.join(", ");
}
function announce() {
  const around = shown.slice(Math.max(0, selected.position - 3), selected.position + 4);
  tree.replaceChildren(...around.map(one => {
    const made = document.createElement("div");
    made.setAttribute("role", "treeitem");
    made.id = "item-" + one.id;
    const siblings = one.parent ? one.parent.inside : [one];
    made.setAttribute("aria-level", 1 + Math.round(one.x / COLUMN));
    made.setAttribute("aria-setsize", siblings.length);
    made.setAttribute("aria-posinset", siblings.indexOf(one) + 1);
    made.setAttribute("aria-selected", String(one === selected));
    if (one.expandable) made.setAttribute("aria-expanded", String(one.open));
    made.setAttribute("aria-label", says(one));
    return made;
  }));
  tree.setAttribute("aria-activedescendant", "item-" + selected.id);
  tree.dataset.selected = selected.id;
}
function select(one, show) {
  selected = one;
  announce();
  reveal(one);
  draw();
  if (show !== false) showSoon();
}
let pending = 0;
function showSoon() {
  clearTimeout(pending);
  pending = setTimeout(show, 60);
}
function open(one, value) {
  if (!one.expandable || one.open === value) return;
  one.open = value;
  const before = one.y;
  layOut();
  view.y += (before - one.y) * view.scale;
  if (!shown.includes(selected)) selected = one;
  announce();
  draw();
}

// --- the panel ---

function el(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}
function folded(title, isOpen, ...inside) {
  const made = el("details");
  made.open = isOpen;
  made.append(el("summary", title), ...inside);
  return made;
}
function pairs(rows) {
  const list = el("dl", undefined, "pairs");
  for (const [name, value] of rows) {
    if (value === null || value === undefined || value === "") continue;
    const row = el("div");
    row.append(el("dt", name), el("dd", String(value)));
    list.append(row);
  }
  return list;
}
const SIGN = {same: " ", added: "+", removed: "−"};
function diff(lines) {
  const made = el("pre", undefined, "diff");
  made.tabIndex = 0;
  made.setAttribute("aria-label", "Edit");
  for (const line of lines) {
    const row = el("div", undefined, line.change);
    if (line.change === "gap") row.append(el("span", "⋯", "n"));
    else row.append(el("span", String(line.line), "n"), el("span", SIGN[line.change] + " " + line.text));
    made.append(row);
  }
  return made;
}
function exchanges(indices) {
  const made = [];
  indices.forEach((index, nth) => {
    const exchange = facts.exchanges[index], last = exchange.said.length - 1;
    const cost = exchange.input_tokens + " tokens in, " + exchange.output_tokens + " out, " + (exchange.took_ms / 1000).toFixed(1) + " s";
    const head = indices.length > 1 ? " " + (nth + 1) : "";
    exchange.said.forEach(([who, text], place) => {
      const isAnswer = who === "reply" && place === last;
      const title = who === "system" ? "Instructions" : who === "prompt" ? "Prompt" : "Reply";
      const pre = el("pre", facts.texts[text], "said");
      pre.tabIndex = 0;
      made.push(folded(title + head + (isAnswer ? " (" + exchange.model + ": " + cost + ")" : ""), isAnswer, pre));
    });
    if (exchange.error) made.push(folded("No reply" + head, true, el("p", exchange.error)));
  });
  return made;
}
function kernelTable(one) {
  const kernels = one.children.filter(child => child.kind === "kernel");
  if (!kernels.length) return null;
  const table = el("table"), head = el("tr"), body = el("tbody");
  for (const title of ["kernel", "ended", "time"]) {
    const cell = el("th", title);
    cell.scope = "col";
    head.append(cell);
  }
  for (const kernel of kernels.slice(0, 200)) {
    const row = el("tr"), first = el("td"), go = el("button", "#" + kernel.of.number);
    go.type = "button";
    go.setAttribute("aria-label", "Show kernel " + kernel.of.number);
    go.addEventListener("click", () => {
      if (!withKernels.checked) { withKernels.checked = true; layOut(); }
      for (let at = kernel.parent; at; at = at.parent) at.open = true;
      layOut();
      select(kernel);
      show();
      tree.focus({preventScroll: true});
    });
    first.append(go);
    row.append(first, el("td", kernel.of.stage), el("td", kernel.time));
    row.title = kernel.label;
    body.append(row);
  }
  table.append(el("thead"), body);
  table.tHead.append(head);
  const wide = el("div", undefined, "wide");
  wide.append(table);
  const more = kernels.length > 200 ? [el("p", kernels.length - 200 + " more in the graph", "note")] : [];
  return folded("Kernels (" + kernels.length + ")", false, wide, ...more);
}
function show() {
  clearTimeout(pending);
  const one = selected, of = one.of, parts = [];
  if (one.kind === "task") {
    parts.push(el("h3", one.label), pairs([
      ["sources", facts.sources.length], ["kernels", facts.kernels.length],
      ["proposals of no use", facts.failures.length], ["model exchanges", facts.exchanges.length]]));
  } else if (one.kind === "source") {
    parts.push(el("h3", of.label), pairs([
      ["verdict", LOOKS[of.look]], ["best time", of.best], ["judged", of.judged], ["valid", of.valid],
      ["estimated", of.estimated],
      ["also grown from", of.parents.slice(1).map(id => (byNode.get(id) || root).label).join(", ")]]));
    if (of.rationale) {
      const pre = el("pre", of.rationale, "said");
      pre.tabIndex = 0;
      parts.push(folded("What its proposer said", true, pre));
    }
    if (of.diff.length) parts.push(folded("Edit", true, diff(of.diff)));
    if (of.text !== null) {
      const pre = el("pre", of.text);
      pre.tabIndex = 0;
      parts.push(folded("Source", true, pre));
    }
    const table = kernelTable(one);
    if (table) parts.push(table);
    parts.push(...exchanges(of.exchanges));
  } else if (one.kind === "kernel") {
    parts.push(el("h3", "Kernel " + of.number), pairs([
      ["verdict", of.stage], ["time", of.time], ["speedup", of.speedup === null ? null : of.speedup.toFixed(3) + "×"],
      ["source", one.parent.label], ["setting", of.setting], ["moved", of.label], ["judging took", (of.took_ms / 1000).toFixed(2) + " s"]]));
    if (of.facts.length) {
      const list = el("ul");
      for (const fact of of.facts) list.append(el("li", fact));
      parts.push(list);
    }
  } else {
    parts.push(el("h3", "No usable proposal"), pairs([["by", of.by], ["for", one.parent.label]]), el("p", of.message));
    parts.push(...exchanges(of.exchanges));
  }
  detail.replaceChildren(...parts);
  detail.scrollTop = 0;
}

// --- keyboard, pointer, buttons ---

const KEYS = {
  ArrowDown: () => selected.position + 1 < shown.length && select(shown[selected.position + 1]),
  ArrowUp: () => selected.position > 0 && select(shown[selected.position - 1]),
  ArrowRight: () => {
    if (selected.expandable && !selected.open) open(selected, true);
    else if (selected.inside.length) select(selected.inside[0]);
  },
  ArrowLeft: () => {
    if (selected.expandable && selected.open && selected.parent) open(selected, false);
    else if (selected.parent) select(selected.parent);
  },
  Home: () => select(shown[0]),
  End: () => select(shown[shown.length - 1]),
  PageDown: () => select(shown[Math.min(shown.length - 1, selected.position + 20)]),
  PageUp: () => select(shown[Math.max(0, selected.position - 20)]),
  Enter: () => { show(); detail.focus(); },
  " ": () => open(selected, !selected.open),
  "*": () => KEYS.expand(),
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), "0": () => fit(),
};
KEYS.expand = () => { for (const one of items) one.open = true; layOut(); announce(); fit(); };
KEYS.collapse = () => {
  for (const one of items) one.open = one === root;
  layOut();
  selected = root;
  announce();
  fit();
};
tree.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = Object.hasOwn(KEYS, event.key) && KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
detail.addEventListener("keydown", event => {
  if (event.key === "Escape") tree.focus();
});
tree.addEventListener("focus", draw);
function toWinner() {
  const wanted = items.filter(one => one.way && isShown(one)).pop() || root;
  for (let at = wanted.parent; at; at = at.parent) at.open = true;
  layOut();
  if (view.scale < 0.7) zoom(0.9 / view.scale);
  select(wanted);
}
const BUTTONS = {in: () => zoom(1.25), out: () => zoom(0.8), fit, winner: toWinner, expand: KEYS.expand, collapse: KEYS.collapse};
for (const button of document.querySelectorAll("[data-do]")) {
  button.addEventListener("click", BUTTONS[button.dataset.do]);
}
withKernels.addEventListener("change", () => {
  layOut();
  if (!isShown(selected)) selected = selected.parent;
  announce();
  fit();
});
find.addEventListener("keydown", event => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const wanted = find.value.trim().toLowerCase();
  if (!wanted) return;
  for (let nth = 1; nth <= items.length; nth++) {
    const one = items[(selected.id + nth) % items.length];
    if (isShown(one) && says(one).toLowerCase().includes(wanted)) {
      for (let at = one.parent; at; at = at.parent) at.open = true;
      layOut();
      select(one);
      return;
    }
  }
});

function at(x, y) {
  const wx = (x - view.x) / view.scale, wy = (y - view.y) / view.scale;
  const near = Math.max(ROW / 2, 12 / view.scale);
  let best = null, least = near;
  for (const one of shown) {
    if (wx < one.x - 14 / view.scale || wx > one.x + COLUMN - 20) continue;
    const away = Math.abs(one.y - wy);
    if (away < least) { least = away; best = one; }
  }
  return best;
}
const pointers = new Map();
let moved = 0, spread = 0, lastTap = 0;
canvas.addEventListener("pointerdown", event => {
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, {x: event.offsetX, y: event.offsetY});
  moved = 0;
  spread = 0;
  tree.focus({preventScroll: true});
  event.preventDefault();
});
canvas.addEventListener("pointermove", event => {
  const before = pointers.get(event.pointerId);
  if (!before) return;
  const now = {x: event.offsetX, y: event.offsetY};
  pointers.set(event.pointerId, now);
  moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
  const [one, two] = [...pointers.values()];
  if (two) {
    const apart = Math.hypot(one.x - two.x, one.y - two.y);
    if (spread > 0 && apart > 0) zoom(apart / spread, (one.x + two.x) / 2, (one.y + two.y) / 2);
    spread = apart;
    return;
  }
  view.x += now.x - before.x;
  view.y += now.y - before.y;
  draw();
});
function lift(event) {
  const was = pointers.delete(event.pointerId);
  spread = 0;
  if (!was || event.type === "pointercancel" || moved > 6) return;
  const hit = at(event.offsetX, event.offsetY);
  if (!hit) return;
  const twice = hit === selected && event.timeStamp - lastTap < 350;
  lastTap = event.timeStamp;
  selected = hit;
  announce();
  draw();
  if (twice) open(hit, !hit.open);
  show();
}
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("wheel", event => {
  if (!event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
}, {passive: false});

// --- start ---

function legend() {
  const holder = document.getElementById("legend");
  const used = new Set(items.map(one => one.look));
  const ratio = window.devicePixelRatio || 1;
  holder.replaceChildren(...Object.keys(LOOKS).filter(look => used.has(look)).map(look => {
    const entry = el("span"), sign = el("canvas");
    sign.width = sign.height = Math.round(14 * ratio);
    sign.style.width = sign.style.height = "14px";
    sign.style.verticalAlign = "-2px";
    sign.setAttribute("aria-hidden", "true");
    const pen = sign.getContext("2d");
    pen.scale(ratio, ratio);
    glyph(pen, look, 7, 7, 5);
    entry.append(sign, " " + LOOKS[look]);
    return entry;
  }));
}
new ResizeObserver(draw).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); legend(); draw(); });
readColours();
layOut();
legend();
announce();
fit();
if (view.scale < 0.5) {
  // too much to read at once: begin where the winner is
  const wanted = items.filter(one => one.way && isShown(one)).pop() || root;
  view.scale = 0.85;
  view.x = 20;
  view.y = canvas.clientHeight / 2 - wanted.y * view.scale;
  draw();
}
show();
})();
