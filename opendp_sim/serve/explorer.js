"use strict";
// Texts are set as text, never as markup; the token stays in this tab.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const POINTS = 41, MOST = 64; // of a curve; numbers of a place that have a slider
let releases = [], places = [], wanted = false, busy = false;

const short = (x) => (typeof x === "number" ? String(+x.toPrecision(4)) : x === null ? "none" : String(x));

function made(tag, text, attributes = {}) {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  for (const name in attributes) found.setAttribute(name, attributes[name]);
  return found;
}

function rowOf(head, tag, cells) {
  const row = made("tr");
  row.append(...(head === null ? [] : [made("th", head, { scope: "row" })]), ...cells.map((cell) => made(tag, cell, tag === "th" ? { scope: "col" } : {})));
  return row;
}

function table(element, heads, rows) {
  const head = made("thead"), body = made("tbody");
  head.append(rowOf(null, "th", heads));
  body.append(...rows);
  element.replaceChildren(head, body);
}

const lengthOf = (columns) => (Object.values(columns)[0] || []).length;

function across(element, columns) { // one line for each answer
  const names = Object.keys(columns);
  table(element, names, Array.from({ length: lengthOf(columns) }, (_, i) => rowOf(null, "td", names.map((name) => short(columns[name][i])))));
}

function down(element, columns, asked) { // one line for each column of a single answer
  const names = Object.keys(columns).filter((name) => !asked.has(name));
  table(element, ["column", "value"], names.map((name) => rowOf(name, "td", [short(columns[name][0])])));
}

async function call(path, body) {
  const headers = { authorization: "Bearer " + sessionStorage.getItem("token") };
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  if (answer.status === 401) $("door").hidden = false;
  if (!answer.ok) throw new Error(`${found.error.code}: expected ${found.error.expected}` + (found.error.hint ? ` (${found.error.hint})` : ""));
  return found;
}

function fault(error) {
  $("fault").hidden = !error;
  $("fault").textContent = error ? error.message : "";
}

const release = () => releases.find((one) => one.name === $("release").value);
const options = (id, names) => $(id).replaceChildren(...names.map((name) => made("option", name)));

// A place has one number for each column, and one for each entry of a column of vectors.
function numbersOf(column) {
  const [low, high] = column.bounds || [null, null], whole = /^(u?int|bool)/.test(column.dtype);
  const middle = low === null ? 0 : (low + high) / 2, width = column.width || 1;
  return Array.from({ length: width }, (_, entry) => ({
    column, entry, low, high, whole, name: column.width ? `${column.name}_${entry}` : column.name, at: whole ? Math.round(middle) : middle,
  }));
}

function slider(place, i) {
  const row = made("div", undefined, { class: "row" }), label = made("label", place.name, { for: "c" + i });
  const kinds = place.low === null ? ["number"] : ["range", "number"];
  const parts = kinds.map((type) => {
    const input = made("input", undefined, { type, step: place.whole ? 1 : "any" });
    if (type === "range") { input.min = place.low; input.max = place.high; }
    input.value = place.at;
    return input;
  });
  parts[0].id = "c" + i;
  if (parts[1]) parts[1].setAttribute("aria-label", place.name + ", as a number");
  parts.forEach((input, which) => input.addEventListener("input", () => {
    if (input.value === "" || !Number.isFinite(+input.value)) return;
    place.at = +input.value;
    if (parts[1 - which]) parts[1 - which].value = input.value;
    ask();
  }));
  row.append(label, ...parts);
  return row;
}

function chosen() {
  const alone = release().questions.filter((one) => one.queries && !one.needs.length).map((one) => one.name);
  const others = release().questions.filter((one) => one.needs.length).map((one) => one.name);
  options("question", alone);
  if (alone.includes("density")) $("question").value = "density";
  $("others").hidden = !others.length;
  $("others").textContent = `Also answered, with parameters of their own, over HTTP: ${others.join(", ")}.`;
  $("claim").textContent = release().claim;
  places = release().columns.flatMap(numbersOf);
  $("columns").replaceChildren(...places.slice(0, MOST).map(slider));
  if (places.length > MOST) $("columns").append(made("p", `The other ${places.length - MOST} numbers stay in the middle of their bounds.`, { class: "note" }));
  const lines = places.slice(0, MOST).filter((place) => place.low !== null).map((place) => place.name);
  options("along", lines);
  $("line").hidden = !lines.length;
  $("found").hidden = true;
  if (alone.length) ask();
}

function queries(along, steps = [0]) {
  const out = {};
  for (const column of release().columns) {
    const own = places.filter((place) => place.column === column);
    out[column.name] = steps.map((step) => {
      const found = own.map((place) => (place === along ? step : place.at)).map((x) => (column.dtype === "bool" ? Boolean(x) : x));
      return column.width ? found : found[0];
    });
  }
  return out;
}

function stepsOf(place) {
  const all = Array.from({ length: POINTS }, (_, i) => place.low + (i * (place.high - place.low)) / (POINTS - 1));
  return place.whole ? [...new Set(all.map(Math.round))] : all;
}

function node(tag, attributes, text) {
  const found = document.createElementNS(SVG, tag);
  for (const name in attributes) found.setAttribute(name, attributes[name]);
  if (text !== undefined) found.textContent = text;
  return found;
}

function draw(place, xs, word, ys) {
  const finite = ys.filter((y) => typeof y === "number");
  const low = Math.min(...finite), high = Math.max(...finite), span = high - low || 1;
  const x = (v) => 70 + (550 * (v - place.low)) / (place.high - place.low || 1), y = (v) => 200 - (175 * (v - low)) / span;
  const points = xs.map((v, i) => (typeof ys[i] === "number" ? x(v).toFixed(1) + "," + y(ys[i]).toFixed(1) : "")).join(" ");
  const here = x(Math.min(Math.max(place.at, place.low), place.high)).toFixed(1);
  $("curve").setAttribute("aria-label", `${word} along ${place.name}: from ${short(low)} to ${short(high)}`);
  $("curve").replaceChildren(
    node("path", { class: "axis", d: "M70 20V200H620", fill: "none" }),
    node("path", { class: "here", d: `M${here} 20V200`, fill: "none" }),
    node("polyline", { class: "line", points }),
    node("text", { x: 64, y: 30, "text-anchor": "end" }, short(high)), node("text", { x: 64, y: 204, "text-anchor": "end" }, short(low)),
    node("text", { x: 70, y: 226 }, short(place.low)), node("text", { x: 620, y: 226, "text-anchor": "end" }, short(place.high)),
    node("text", { x: 345, y: 226, "text-anchor": "middle" }, place.name));
}

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'"; // for a POSIX shell

async function ask() {
  if (busy) { wanted = true; return; } // one request at a time, and the newest wish after it
  busy = true;
  $("found").setAttribute("aria-busy", "true");
  try {
    const path = `/v1/releases/${encodeURIComponent(release().name)}/${$("question").value}`;
    const body = { queries: queries() }, place = places.find((one) => one.name === $("along").value);
    const asked = new Set(["query", "class", ...release().columns.map((column) => column.name)]);
    const here = (await call(path, body)).columns;
    const word = Object.keys(here).find((name) => !asked.has(name));
    $("value").textContent = here.class ? "" : `${word} ${short(here[word][0])}`;
    (lengthOf(here) === 1 ? down : across)($("here"), here, asked);
    $("curl").textContent = `curl ${quoted(location.origin + path)} -H "authorization: Bearer $TOKEN" \\\n  -H "content-type: application/json" -d ${quoted(JSON.stringify(body))}`;
    const drawn = place !== undefined && typeof here[word][0] === "number";
    $("curved").hidden = !drawn;
    if (drawn) {
      const xs = stepsOf(place), found = (await call(path, { queries: queries(place, xs) })).columns;
      const every = lengthOf(found) / xs.length; // of several classes the first is drawn
      draw(place, xs, found.class ? `${word} of ${found.class[0]}` : word, found[word].filter((_, i) => i % every === 0));
      across($("numbers"), found);
      $("name").textContent = place.name;
    }
    $("found").hidden = false;
    fault(null);
  } catch (error) { fault(error); }
  busy = false;
  if (wanted) { wanted = false; ask(); } else $("found").setAttribute("aria-busy", "false");
}

async function open() {
  try {
    releases = (await call("/v1/releases")).releases;
    $("door").hidden = true;
    if (!releases.length) throw new Error("no release is served here");
    options("release", releases.map((one) => one.name));
    $("ask").hidden = false;
    $("release").focus();
    fault(null);
    chosen();
  } catch (error) { fault(error); }
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  open();
});
$("release").addEventListener("change", chosen);
for (const id of ["question", "along"]) $(id).addEventListener("change", ask);
if (sessionStorage.getItem("token")) open();
