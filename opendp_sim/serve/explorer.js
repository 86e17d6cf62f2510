"use strict";
// Texts are set as text, never as markup; the token stays in this tab.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const POINTS = 41;
let releases = [], at = {}, wanted = false, busy = false;

const short = (x) => (typeof x === "number" ? String(+x.toPrecision(4)) : x === null ? "none" : String(x));

function fill(parent, tag, texts) {
  parent.replaceChildren(...texts.map((text) => {
    const made = document.createElement(tag);
    made.textContent = text;
    return made;
  }));
}

function table(element, columns) {
  const names = Object.keys(columns), rows = names.length ? columns[names[0]].length : 0;
  const head = document.createElement("tr");
  fill(head, "th", names);
  const body = Array.from({ length: rows }, (_, i) => {
    const row = document.createElement("tr");
    fill(row, "td", names.map((name) => short(columns[name][i])));
    return row;
  });
  element.replaceChildren(head, ...body);
}

async function call(path, body) {
  const headers = { authorization: "Bearer " + sessionStorage.getItem("token") };
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error.code + ": expected " + found.error.expected);
  return found;
}

function fault(error) {
  $("fault").hidden = !error;
  $("fault").textContent = error ? error.message : "";
}

const release = () => releases.find((one) => one.name === $("release").value);
const numeric = () => release().columns.filter((column) => column.bounds);

function chosen() {
  fill($("question"), "option", release().asks);
  if (release().asks.includes("density")) $("question").value = "density"; // the one that needs nothing else
  fill($("along"), "option", numeric().map((column) => column.name));
  $("claim").textContent = release().claim;
  at = {};
  $("columns").replaceChildren(...release().columns.map((column, i) => {
    const row = document.createElement("div"), label = document.createElement("label");
    const [low, high] = column.bounds || [0, 0];
    row.className = "row";
    label.textContent = column.name;
    label.htmlFor = "c" + i;
    at[column.name] = (low + high) / 2;
    const parts = ["range", "number"].map((kind) => {
      const input = document.createElement("input");
      input.type = kind;
      if (kind === "range") { input.min = low; input.max = high; }
      input.step = "any";
      input.value = at[column.name];
      return input;
    });
    parts[0].id = "c" + i;
    parts[1].setAttribute("aria-label", column.name + ", as a number");
    parts.forEach((input, which) => input.addEventListener("input", () => {
      if (input.value === "" || !Number.isFinite(+input.value)) return;
      at[column.name] = +input.value;
      parts[1 - which].value = input.value;
      ask();
    }));
    row.append(label, ...parts);
    return row;
  }));
  ask();
}

function queries(along) {
  const out = {};
  for (const column of release().columns) out[column.name] = [at[column.name]];
  if (along) {
    const [low, high] = along.bounds;
    const steps = Array.from({ length: POINTS }, (_, i) => low + (i * (high - low)) / (POINTS - 1));
    for (const name in out) out[name] = steps.map(() => at[name]);
    out[along.name] = steps;
  }
  return out;
}

function node(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(name, xs, word, ys) {
  const finite = ys.filter((y) => typeof y === "number");
  const low = Math.min(...finite), high = Math.max(...finite), span = high - low || 1;
  const [left, right] = [xs[0], xs[xs.length - 1]];
  const x = (v) => 70 + (550 * (v - left)) / (right - left || 1), y = (v) => 200 - (175 * (v - low)) / span;
  const points = xs.map((v, i) => (typeof ys[i] === "number" ? x(v).toFixed(1) + "," + y(ys[i]).toFixed(1) : "")).join(" ");
  $("curve").setAttribute("aria-label", `${word} along ${name}: from ${short(low)} to ${short(high)}`);
  $("curve").replaceChildren(
    node("path", { class: "axis", d: "M70 20V200H620", fill: "none" }),
    node("polyline", { class: "line", points }),
    node("text", { x: 64, y: 30, "text-anchor": "end" }, short(high)), node("text", { x: 64, y: 204, "text-anchor": "end" }, short(low)),
    node("text", { x: 70, y: 226 }, short(left)), node("text", { x: 620, y: 226, "text-anchor": "end" }, short(right)),
    node("text", { x: 345, y: 226, "text-anchor": "middle" }, name));
}

async function ask() {
  if (busy) { wanted = true; return; } // one request at a time, and the newest wish after it
  busy = true;
  try {
    const path = `/v1/releases/${encodeURIComponent(release().name)}/${$("question").value}`;
    const body = { queries: queries() }, along = numeric().find((column) => column.name === $("along").value);
    const here = (await call(path, body)).columns;
    table($("here"), here);
    $("curl").textContent = `curl ${location.origin}${path} -H "authorization: Bearer $TOKEN" \\\n  -H "content-type: application/json" -d '${JSON.stringify(body)}'`;
    const word = Object.keys(here).find((name) => !(name in at) && name !== "query" && name !== "class");
    if (along && word) {
      const found = (await call(path, { queries: queries(along) })).columns;
      const every = found[word].length / POINTS; // of several classes the first is drawn
      draw(along.name, queries(along)[along.name], word, found[word].filter((_, i) => i % every === 0));
      table($("numbers"), found);
      $("name").textContent = along.name;
    }
    $("found").hidden = false;
    fault(null);
  } catch (error) { fault(error); }
  busy = false;
  if (wanted) { wanted = false; ask(); }
}

async function open() {
  try {
    releases = (await call("/v1/releases")).releases;
    $("door").hidden = true;
    if (!releases.length) throw new Error("no release is served here");
    fill($("release"), "option", releases.map((one) => one.name));
    $("ask").hidden = false;
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
