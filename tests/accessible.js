// What of a page a reader could stumble over. Returns a list of sentences; empty where there is nothing.
(() => {
  const faults = [];
  const say = (what, node) => faults.push(`${what}: ${(node.outerHTML || "").slice(0, 120)}`);
  const all = (selector) => [...document.querySelectorAll(selector)];
  if (!document.documentElement.lang) faults.push("no language");
  if (!document.title.trim()) faults.push("no title");
  if (all("main").length !== 1) faults.push("not one main part");
  if (all("h1").length !== 1) faults.push("not one first heading");
  let level = 0;
  for (const node of all("h1,h2,h3,h4,h5,h6")) {
    const next = Number(node.tagName[1]);
    if (next > level + 1) say("a heading skips a level", node);
    if (!node.textContent.trim()) say("an empty heading", node);
    level = next;
  }
  for (const node of all("section")) {
    const name = node.getAttribute("aria-label") || (node.querySelector("h1,h2,h3") || {}).textContent;
    if (!(name || "").trim()) say("a part without a name", node);
  }
  for (const node of all("svg,[role=img]")) {
    if (node.getAttribute("role") !== "img" || !(node.getAttribute("aria-label") || "").trim()) say("a picture without a name", node);
  }
  for (const node of all("img")) if (!node.hasAttribute("alt")) say("a picture without a name", node);
  for (const node of all("a,button,input,select,textarea")) {
    if (!(node.textContent || node.getAttribute("aria-label") || "").trim()) say("a control without a name", node);
  }
  for (const table of all("table")) {
    if (!table.querySelector("thead th")) say("a table without heads", table);
    for (const head of table.querySelectorAll("th")) {
      if (!["row", "col"].includes(head.getAttribute("scope"))) say("a head of neither row nor column", head);
      if (!head.textContent.trim()) say("an empty head", head);
    }
  }
  for (const list of all("ol,ul")) for (const item of list.children) if (item.tagName !== "LI") say("no item of a list", item);
  for (const list of all("dl")) for (const item of list.children) if (!["DT", "DD"].includes(item.tagName)) say("no item of a list", item);
  const ids = all("[id]").map((node) => node.id);
  if (new Set(ids).size !== ids.length) faults.push("an id occurs twice");

  // Contrast, as WCAG 2 defines it: 4.5 for text, 3 for large text.
  const numbers = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, below) => {
    const a = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a));
  };
  const behind = (node) => {
    const layers = [];
    for (let at = node; at instanceof Element; at = at.parentElement) {
      const color = numbers(getComputedStyle(at).backgroundColor);
      if (color.length > 2 && (color.length < 4 || color[3] > 0)) layers.push(color);
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || ["STYLE", "SCRIPT"].includes(node.tagName) || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize);
    const back = behind(node), ink = over(numbers(node.closest("svg") ? style.fill : style.color), back);
    const [high, low] = [light(ink), light(back)].sort((a, b) => b - a);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5)) say(`contrast ${ratio.toFixed(2)}`, node);
    const shown = node.closest("svg") ? size * node.getBoundingClientRect().height / Math.max(node.getBBox().height, 1e-9) : size;
    if (shown < 9) say(`letters of ${shown.toFixed(1)} pixels`, node);
  }
  if (document.documentElement.scrollWidth > window.innerWidth) faults.push(`sideways scroll: ${document.documentElement.scrollWidth} in ${window.innerWidth}`);
  return faults;
})()
