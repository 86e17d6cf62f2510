const token = location.hash.slice(1) || sessionStorage.getItem("token") || "";
sessionStorage.setItem("token", token); // of this origin, its port included; a cookie would go to every port
history.replaceState(null, "", "/");
const $ = (id) => document.getElementById(id);
const policy = window.trustedTypes?.createPolicy("studio", { createHTML: (text) => text }) ?? { createHTML: (text) => text };
const put = (id, html) => { $(id).innerHTML = policy.createHTML(html); }; // written by the server, which escapes every text
const LOW = 0.05, SPAN = 160; // epsilon from 0.05 to 8
const toEps = (at) => Number((LOW * SPAN ** (at / 100)).toPrecision(2));
const toPos = (eps) => Math.round((100 * Math.log(eps / LOW)) / Math.log(SPAN));
const fields = { label: "label", keys: "keys", item: "item", most: "most", target: "target", size: "size", asked: "asked", stated: "stated", limit: "limit", limitdelta: "limit_delta", delta: "delta", rows: "rows", ids: "ids" };
let form, names, questions, file = "", plan = null, state = "draft", wish = null, flying = false, timer = 0, typed = "", kept = null;

function el(tag, props = {}, ...kids) { const made = Object.assign(document.createElement(tag), props); made.append(...kids); return made; }
const say = (text) => { $("live").textContent = text; };
async function call(name, body) {
  const more = body ? { method: "POST", body: JSON.stringify(body) } : {};
  const answer = await fetch(`/api/${name}`, { ...more, credentials: "omit", headers: { authorization: `Bearer ${token}`, "content-type": "application/json" } });
  if (answer.status === 401) $("panel").replaceChildren(el("div", { className: "card empty" }, el("h2", { textContent: "This page has no key" }), el("p", { textContent: "Open the address that the terminal shows." })));
  return [await answer.json(), answer.ok];
}

// --- the form ---
function draw() {
  $("questions").replaceChildren(...Object.entries(questions).map(([key, q]) => {
    const input = el("input", { type: "radio", name: "question", value: key, checked: form.question === key });
    input.addEventListener("change", () => { form.question = key; draw(); look(); $("questions").querySelector(":checked").focus(); });
    return el("label", {}, input, el("span", { textContent: q.name }));
  }));
  const uses = questions[form.question].uses, person = form.unit !== "" && form.unit !== "row";
  $("hint").textContent = questions[form.question].hint;
  for (const radio of document.querySelectorAll("[name=unit]")) radio.checked = form.unit !== "" && (radio.value === "row") === !person;
  $("person").hidden = !person; $("rowsbox").hidden = !uses.includes("columns");
  $("columns").hidden = !uses.includes("columns"); $("classes").hidden = !uses.includes("label") && !uses.includes("any_label"); $("items").hidden = !uses.includes("item");
  $("targets").hidden = !uses.includes("target"); $("planned").hidden = !uses.includes("asked"); $("statedbox").hidden = !Object.keys(form.columns).length;
  for (const [id, value] of [["who", person ? form.unit : ""], ["label", form.label], ["item", form.item], ["target", form.target]]) {
    const all = id === "target" ? Object.keys(form.columns) : names;
    const known = value && value !== "?" && !all.includes(value) ? [value, ...all] : all;
    $(id).replaceChildren(el("option", { value: "", textContent: id === "label" && uses.includes("any_label") ? "none" : "choose" }), ...known.map((name) => el("option", { textContent: name, value: name })));
    $(id).value = value === "?" ? "" : value;
  }
  for (const [id, word] of Object.entries(fields)) if (!["label", "item", "target"].includes(id)) $(id).value = form[word];
  $("eps").value = toPos(form.epsilon); slid();
  $("cols").replaceChildren(...[...new Set([...names, ...Object.keys(form.columns)])].map(column));
}
function column(name) {
  const has = form.columns[name], near = questions[form.question].uses.includes("near");
  const box = el("input", { type: "checkbox", checked: !!has });
  box.addEventListener("change", () => {
    if (box.checked) form.columns[name] = { low: "", high: "", near: "", share: 6 }; else delete form.columns[name];
    draw(); look();
    [...$("cols").children].find((li) => li.dataset.name === name)?.querySelector(box.checked ? "[inputmode]" : "input")?.focus();
  });
  const li = el("li", {}, el("label", { className: "pick" }, box, el("span", { textContent: name })));
  li.dataset.name = name;
  if (!has) return li;
  const low = el("input", { inputMode: "decimal", value: has.low, placeholder: "lowest", ariaLabel: `${name}, lowest` });
  const high = el("input", { inputMode: "decimal", value: has.high, placeholder: "highest", ariaLabel: `${name}, highest` });
  const share = has.share ?? (has.near === "" ? 6 : (100 * has.near) / (has.high - has.low));
  const out = el("output", { textContent: has.near === "" ? "–" : `±${has.near}` });
  const slider = el("input", { type: "range", min: 0.5, max: 30, step: 0.5, value: share, ariaLabel: `${name}, how far is near` });
  const change = () => {
    has.low = low.value.trim(); has.high = high.value.trim(); has.share = Number(slider.value);
    const range = Number(has.high) - Number(has.low), ok = has.low !== "" && has.high !== "" && range > 0;
    low.ariaInvalid = high.ariaInvalid = String(has.low !== "" && has.high !== "" && !ok);
    has.near = ok ? Number(((range * has.share) / 100).toPrecision(2)) : "";
    out.textContent = has.near === "" ? "–" : `±${has.near}`; look();
  };
  if (has.near === "" && has.low !== "" && has.high !== "") { has.share = 6; has.near = Number(((has.high - has.low) * 0.06).toPrecision(2)); }
  for (const input of [low, high, slider]) input.addEventListener("input", change);
  li.append(el("div", { className: "more" }, el("div", { className: "bounds" }, low, "to", high), ...(near ? [el("label", { className: "slide" }, el("span", { textContent: "near" }), out, slider)] : [])));
  return li;
}
function slid() { $("epsout").textContent = form.epsilon; $("eps").ariaValueText = `epsilon ${form.epsilon}`; }
$("eps").addEventListener("input", () => { form.epsilon = toEps(Number($("eps").value)); slid(); look(); });
for (const [id, word] of Object.entries(fields)) $(id).addEventListener("input", () => { form[word] = $(id).value; look(); });
for (const radio of document.querySelectorAll("[name=unit]")) radio.addEventListener("change", () => { form.unit = radio.value === "row" ? "row" : "?"; draw(); look(); });
$("who").addEventListener("input", () => { form.unit = $("who").value || "?"; look(); });
$("names").addEventListener("input", () => { names = $("names").value.split(",").map((n) => n.trim()).filter(Boolean); draw(); look(); });
for (const radio of document.querySelectorAll("[name=first]")) radio.addEventListener("change", async () => {
  const [got, ok] = await call("header", { first: radio.value });
  if (!ok) return;
  names = got.names; $("namesbox").hidden = names.length > 0; draw(); look();
  if (!names.length) $("names").focus();
});
$("form").addEventListener("submit", (event) => event.preventDefault());

// --- one request at a time, and the newest wish after it: a debounce shows nothing while a slider moves ---
function look(text) { wish = { text }; clearTimeout(timer); timer = setTimeout(next, text === undefined ? 0 : 250); }
async function next() {
  while (wish && !flying) { const { text } = wish; wish = null; flying = true; try { await send(text); } catch { lost(); } finally { flying = false; } }
}
function lost() {
  plan = null; state = "lost"; say("The studio does not answer."); $("panel").setAttribute("aria-busy", "false");
  $("panel").replaceChildren(el("div", { className: "card warn" }, el("h2", { textContent: "The studio does not answer" }), el("p", { textContent: "It was stopped, or it is busy with other work. Start it again with the same command and open the new address: a run that was paid for and cut off is finished for nothing." })));
  facts();
}
async function send(text) {
  $("panel").setAttribute("aria-busy", "true");
  const began = performance.now();
  const [got, ok] = await call("plan", text === undefined ? { names, form } : { yaml: text });
  $("panel").setAttribute("aria-busy", "false");
  if (!ok) { plan = null; state = "draft"; if (got.error?.text) paint([{ line: 0, text: got.error.text }]); facts(); return; }
  plan = got.plan ?? null; state = got.state; put("panel", got.html);
  performance.measure("plan", { start: began, end: performance.now() });
  if (text === undefined) { if (got.yaml !== undefined) $("yaml").value = got.yaml; $("custom").hidden = true; }
  else if (!wish) {
    if (got.form) { form = merge(got.form); draw(); }
    $("custom").hidden = !!got.form || state !== "planned";
  }
  paint(got.findings ?? []); facts();
}
function merge(found) { // bounds of near that this question does not use stay as they were
  for (const [name, chosen] of Object.entries(found.columns)) if (chosen.near === "") chosen.near = form.columns[name]?.near ?? "";
  return found;
}
const short = (cost) => cost.split(",")[0].replace("epsilon", "ε");
function facts() {
  const about = $("facts")?.dataset, go = $("spend"), runs = $("runs");
  $("s1").textContent = about?.error ?? "–"; $("s2").textContent = about?.right ?? "–"; $("s3").textContent = about?.left ?? "–";
  go.disabled = !plan || about?.fits === "0"; $("look").disabled = !plan;
  go.textContent = state === "lost" ? "No answer" : state === "refused" ? "Mend the spec" : !plan ? "Fill in the form" : about?.fits === "0" ? "Does not fit" : `Spend ${short(about.epsilon)}`;
  compared();
  $("history").hidden = !runs; if (runs) $("history").replaceChildren(runs.content.cloneNode(true));
}


// --- two plans side by side ---
const standing = () => { const { error, right, after, epsilon, limit, asked } = $("facts").dataset; return { yaml: $("yaml").value, rows: [["Question", asked], ["Costs", epsilon], ["Error", error], ["Attacker", right], ["Limit used", limit ? `${after} of ${limit}` : "–"]] }; };
function compared() {
  const now = plan ? standing() : null;
  $("compare").hidden = !now && !kept; $("keep").disabled = !now; $("keptnote").hidden = !!kept;
  $("both").hidden = $("return").hidden = !kept;
  if (kept) $("both").tBodies[0].replaceChildren(...kept.rows.map(([name, text], at) => el("tr", {}, el("th", { scope: "row", textContent: name }), ...[["Kept", text], ["Now", now ? now.rows[at][1] : "–"]].map(([head, said]) => { const cell = el("td", { textContent: said }); cell.dataset.head = head; return cell; }))));
}
$("keep").addEventListener("click", () => { kept = standing(); compared(); say("Kept."); });
$("return").addEventListener("click", () => { $("yaml").value = kept.yaml; paint([]); look(kept.yaml); });

// --- the spec ---
function paint(findings) {
  const lines = $("yaml").value.split("\n"), bad = new Map(findings.map((f) => [f.line, f]));
  $("gutter").replaceChildren(...lines.flatMap((_, i) => [el("span", bad.has(i + 1) ? { className: "bad", textContent: `● ${i + 1}` } : { textContent: `${i + 1}` }), "\n"]));
  $("paint").replaceChildren(...lines.flatMap((line, i) => [...tint(line, bad.get(i + 1)), "\n"]));
  $("findings").replaceChildren(...findings.map((f) => {
    const go = el("button", { type: "button", textContent: f.line ? `line ${f.line}` : "form" });
    go.addEventListener("click", () => { const at = lines.slice(0, f.line - 1).join("\n").length + (f.line > 1) + f.column - 1; $("yaml").focus(); $("yaml").setSelectionRange(at, at + f.length); });
    return el("li", {}, ...(f.line ? [go] : []), f.text);
  }));
}
function tint(line, found) {
  if (found) { const a = Math.max(found.column - 1, 0), b = Math.min(a + Math.max(found.length, 1), line.length); return [line.slice(0, a), el("mark", { textContent: line.slice(a, b) || " " }), line.slice(b)]; }
  const parts = /^(\s*(?:- )?)([\w.-]+)(:)(.*)$/.exec(line);
  return parts ? [parts[1], el("span", { className: "key", textContent: parts[2] }), parts[3], parts[4]] : [line];
}
$("yaml").addEventListener("input", () => { paint([]); look($("yaml").value); });
$("copy").addEventListener("click", async () => { await navigator.clipboard.writeText($("yaml").value); say("Copied."); });
$("back").addEventListener("click", () => { draw(); look(); });

// --- spending: the file is opened once ---
const row = (name, text) => [el("dt", { textContent: name }), el("dd", { textContent: text })];
$("spend").addEventListener("click", () => {
  const about = $("facts").dataset;
  $("sure").dataset.plan = plan; $("sure").dataset.head = about.head; // what is shown here is what is confirmed
  $("surefacts").replaceChildren(...(about.again ? row("Again", `The same plan was released at ${about.again}; this would be charged again.`) : []), ...row("Question", about.asked), ...row("Costs", about.epsilon), ...row("Ledger", `${about.before} spent now, ${about.after} afterwards, of ${about.limit}`), ...row("Error", about.error), ...row("Attacker", about.right), ...(about.drops ? row("Dropped", `${about.drops} A private look counts such rows before you spend.`) : []));
  typed = about.large === "1" ? file : ""; $("typebox").hidden = !typed; $("typed").value = ""; check();
  $("sureyes").textContent = `Spend ${short(about.epsilon)}`; $("sure").returnValue = "no"; $("sure").showModal();
});
const check = () => { $("sureyes").disabled = typed !== "" && $("typed").value !== typed; };
$("typed").addEventListener("input", check);
function door(text, open) { $("door").textContent = text; $("door").classList.toggle("open", open); }
$("sure").addEventListener("close", async () => {
  if ($("sure").returnValue !== "yes") return;
  $("sure").returnValue = "no"; // one click is one spend, also where two closings are told together
  const { plan: key, head } = $("sure").dataset, body = { plan: key, head, nonce: crypto.randomUUID() };
  door("Reading the data", true); $("spend").disabled = true; $("spend").textContent = "Spending";
  let got, ok, lost = false;
  for (let again = 0; again < 2; again++) try { [got, ok] = await call("spend", body); lost = false; break; } catch { lost = true; } // one nonce: charged once
  door("Data closed", false); $("result").hidden = false;
  if (lost) $("result").replaceChildren(el("p", { className: "card custom", textContent: "The answer was lost. The ledger below says whether it was charged." }));
  else if (ok) { shown(got); say("Released."); $("result").scrollIntoView({ block: "start" }); }
  else $("result").replaceChildren(el("p", { className: "card custom", textContent: got.error.text ?? "The run failed. The ledger below says whether it was charged." }));
  look($("yaml").value);
});
function shown(got) { $("result").hidden = false; put("result", got.html); listen(); }
function listen() {
  const box = $("ask"), once = $("once");
  let waiting = false, busy = false, asking = "";
  const ask = async () => {
    waiting = true; if (busy) return; busy = true;
    while (waiting) {
      waiting = false;
      const at = {};
      for (const input of box.querySelectorAll("input")) { at[input.name] = Number(input.value); input.parentElement.querySelector("output").value = Number(Number(input.value).toPrecision(4)); }
      if (once && !asking) break;
      const [got, ok] = await call("ask", { run: box.dataset.run, at, ...(once && { nonce: asking }) });
      if (!ok) { if (once) $("small").textContent = got.error.text ?? got.error.expected; break; }
      if (!box.isConnected) break; // another result took its place
      $("answer").textContent = got.big; $("small").textContent = got.small; $("each").hidden = !got.rows.length;
      $("each").tBodies[0].replaceChildren(...got.rows.map(([name, text]) => el("tr", {}, el("th", { scope: "row", textContent: name }), el("td", { textContent: text }))));
    }
    busy = false;
  };
  if (box) { box.addEventListener("input", ask); ask(); }
  if (once) {
    door("Session open", true);
    once.addEventListener("click", async () => {
      once.disabled = true; asking = crypto.randomUUID();
      for (let again = 0; again < 2; again++) try { await ask(); break; } catch { busy = false; $("small").textContent = "The answer was lost. Ask again."; } // one nonce: charged once
      asking = ""; once.disabled = false;
    });
    $("end").addEventListener("click", async () => { await call("end", { run: box.dataset.run }); once.disabled = $("end").disabled = true; door("Data closed", false); look($("yaml").value); });
  }
  for (const button of $("result").querySelectorAll("[data-what]")) button.addEventListener("click", async () => {
    const [got, ok] = await call("ticket", { run: button.parentElement.dataset.run, what: button.dataset.what });
    if (ok && got.href) location.assign(got.href); // a file to keep: the page stays
  });
}

// --- a private look: its own confirmation, and the door stands open while it is shown ---
$("look").addEventListener("click", () => {
  if (!$("looked").hidden) { $("looked").replaceChildren(); $("looked").hidden = true; $("look").textContent = "Count in the data…"; door("Data closed", false); return; }
  $("open").dataset.plan = plan; $("open").returnValue = "no"; $("open").showModal();
});
$("open").addEventListener("close", async () => {
  if ($("open").returnValue !== "yes") return;
  $("open").returnValue = "no";
  door("Data open", true); $("look").disabled = true;
  const [got, ok] = await call("look", { plan: $("open").dataset.plan });
  $("look").disabled = false;
  if (ok) { put("looked", got.html); $("look").textContent = "Close the data"; }
  else { $("looked").textContent = got.error.text ?? got.error.expected; $("look").textContent = "Close"; }
  $("looked").hidden = false;
});

// --- a page out of the browser's memory shows what was: no open confirmation, and everything asked anew ---
addEventListener("pagehide", () => { for (const box of document.querySelectorAll("dialog[open]")) { box.returnValue = "no"; box.close(); } });
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

const [begin, fine] = await call("start");
if (fine) {
  ({ form, names, questions, file } = begin);
  $("file").textContent = file; document.title = `${file} - studio`; $("named").hidden = names.length > 0; $("namesbox").hidden = begin.unsure; draw();
  if (begin.yaml) $("yaml").value = begin.yaml;
  look(begin.yaml || undefined);
  const last = begin.runs.at(-1);
  if (last) { const [got, ok] = await call("show", { run: last.run }); if (ok) shown(got); }
}
