"use strict";
const at = (id) => document.getElementById(id);
const HINTS = {
  text: ["Text", "Type or paste a text. Ctrl + Enter suggests labels."],
  sparse: ["Features", "feature:value, separated by spaces, such as 3:1 17:2.5. Ctrl + Enter suggests labels."],
  vector: ["Vector", "Numbers, separated by spaces or commas. Ctrl + Enter suggests labels."],
  image: ["Image", "Pixel values from 0 to 255, line by line, separated by spaces. Ctrl + Enter suggests labels."],
};
const WHOLE = ["vector", "image"]; // forms of rows that have no parts to leave out
const SLICE = 90;
let model = null, examples = [], asked = 0, current = null;

/* Text from data never becomes markup: every node is made here. */
const node = (tag, props = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name in made) made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};
const ask = async (path, body) => {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(typeof content.detail === "string" ? content.detail : JSON.stringify(content));
  return content;
};
const numbers = (text) => text.split(/[\s,;]+/).filter(Boolean).map((word) => {
  const number = Number(word);
  if (Number.isNaN(number)) throw new Error(`“${word}” is not a number`);
  return number;
});
const rowOf = (text) => {
  if (model.form === "text") return { text };
  if (WHOLE.includes(model.form)) return { [model.form]: numbers(text) };
  const pairs = text.split(/\s+/).filter(Boolean).map((pair) => numbers(pair.replace(":", " ")));
  if (pairs.some((pair) => pair.length !== 2)) throw new Error("write each feature as feature:value");
  return { indices: pairs.map((pair) => pair[0]), values: pairs.map((pair) => pair[1]) };
};
const bagOf = (text) => text.replace(/\n+$/, "").split("\n").map(rowOf);
const textOf = (row) => {
  if ("text" in row) return row.text;
  for (const form of WHOLE) if (form in row) return row[form].join(" ");
  return row.indices.map((index, place) => `${index}:${row.values[place]}`).join(" ");
};
const short = (text) => (text.length > SLICE ? `${text.slice(0, SLICE)}…` : text);
const say = (text, isError = false) => {
  at("status").textContent = text;
  at("status").classList.toggle("error", isError);
};
const signed = (value) => `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) < 0.0095 ? 4 : 2)}`;
const tone = (value, most) => {
  const step = Math.min(3, Math.max(1, Math.ceil((3 * Math.abs(value)) / most)));
  return `${value > 0 ? "for" : "against"}${step}`;
};

const bar = (share) => {
  const space = "http://www.w3.org/2000/svg";
  const drawing = document.createElementNS(space, "svg"), filled = document.createElementNS(space, "rect");
  drawing.setAttribute("class", "bar");
  drawing.setAttribute("width", "100%");
  drawing.setAttribute("aria-hidden", "true");
  filled.setAttribute("height", "100%");
  filled.setAttribute("width", `${100 * share}%`);
  drawing.append(filled);
  return drawing;
};
const scoreText = (one) => {
  if (model.scale === "share") return one.score.toFixed(3);
  return `${one.share.toFixed(3)} (${model.scale} ${one.score.toPrecision(3)})`;
};
const item = (one, truth) => {
  const isTrue = truth.has(one.id);
  const name = node("span", {}, node("strong", {}, one.name || one.id));
  if (one.name && one.name !== one.id) name.append(" ", node("small", {}, one.id));
  if ("row" in one) {
    const share = `${(100 * one.weight).toFixed(0)}% of the evidence`;
    name.append(" ", node("small", { className: "explains" }, `line ${one.row + 1}, ${share}`));
  }
  if (isTrue) name.append(" ", node("span", { className: "tick", title: "a true label of this row" }, "✓ true"));
  const button = node("button", { type: "button", className: "label" }, name,
    node("span", { className: "value" }, scoreText(one)));
  if (!WHOLE.includes(model.form) && !("row" in one)) button.setAttribute("aria-expanded", "false");
  const terms = node("div", { className: "terms", hidden: true });
  button.addEventListener("click", () => explain(one, button, terms));
  const line = node("li", { className: isTrue ? "is-true" : "" }, button, bar(one.share), terms);
  line.dataset.share = one.share;
  return line;
};

const applyThreshold = () => {
  const least = Number(at("threshold").value), lines = [...at("labels").children];
  at("limit").textContent = least.toFixed(2);
  for (const line of lines) line.hidden = Number(line.dataset.share) < least;
  if (lines.length) {
    const shown = lines.filter((line) => !line.hidden).length;
    say(`${shown} of ${lines.length} labels reach the threshold ${least.toFixed(2)}. Version ${current.version} answered.`);
  }
};
const forget = () => {
  for (const id of ["truth", "marked", "near"]) at(id).hidden = true;
  at("labels").replaceChildren();
};

const suggest = async () => {
  const turn = ++asked;
  const example = examples[at("example").value];
  forget();
  say("Scoring …");
  try {
    const isBag = model.bags && at("bag").checked, k = Number(at("most").value);
    const row = isBag ? null : rowOf(at("row").value);
    const answer = isBag ? await ask("api/bag", { rows: bagOf(at("row").value), k }) : await ask("api/suggest", { row, k, per_label: model.thresholds && at("per-label").checked });
    if (turn !== asked) return;
    if (answer.version !== model.version) await showModel();
    const truth = new Map((example ? example.labels : []).map((label) => [label.id, label.name]));
    current = { row, version: answer.version, labels: answer.suggestions.map((one) => one.id) };
    at("labels").replaceChildren(...answer.suggestions.map((one) => item(one, truth)));
    if (answer.suggestions.length) applyThreshold(); else say("The model suggests no label for this row.");
    showTruth(truth, new Set(current.labels));
    if (WHOLE.includes(model.form) && !isBag) await reasonsFor(current);
  } catch (error) { if (turn === asked) say(error.message, true); }
};
const showTruth = (truth, found) => {
  at("truth").hidden = truth.size === 0;
  at("true-labels").replaceChildren(...[...truth].map(([id, name]) =>
    node("li", {}, name || id, " ", node("span", { className: "id" }, found.has(id) ? "found" : "not among the suggestions"))));
};

/* All labels of a row are explained by one request, which the first "why?" sends. */
const reasonsFor = (question) => {
  question.reasons ||= ask("api/reasons", { row: question.row, labels: question.labels }).then((reasons) => {
    if (question === current) showNear(reasons.nearest);
    return reasons;
  });
  return question.reasons;
};
const explain = async (one, button, terms) => {
  if (!button.hasAttribute("aria-expanded")) return;
  const open = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!open));
  terms.hidden = open;
  if (open) return;
  terms.textContent = "Leaving out each part in turn …";
  const question = current;
  try {
    const reasons = await reasonsFor(question), found = reasons.terms[one.id];
    const most = Math.max(...found.map((term) => Math.abs(term.lost)));
    terms.replaceChildren(...found.map((term) =>
      node("span", { className: `term ${tone(term.lost, most)}` }, `${term.part} ${signed(term.lost)}`)));
    if (!found.length) terms.textContent = "No single part changes this score.";
    if (reasons.cut) terms.append(node("span", { className: "soft" }, "Only the first 256 parts were tried."));
    if (question === current && model.form === "text") mark(one, found, most);
  } catch (error) { terms.textContent = error.message; }
};
const mark = (one, found, most) => {
  const effects = new Map(found.map((term) => [term.part, term.lost])), text = at("marked-text");
  text.replaceChildren();
  let end = 0;
  for (const word of current.row.text.matchAll(/[\p{L}\p{N}_\p{M}]+/gu)) {
    const lost = effects.get(word[0].toLowerCase());
    if (lost === undefined) continue;
    text.append(current.row.text.slice(end, word.index),
      node("mark", { className: tone(lost, most), title: signed(lost) }, word[0]));
    end = word.index + word[0].length;
  }
  text.append(current.row.text.slice(end));
  at("marked-title").textContent = `What speaks for “${one.name || one.id}”`;
  at("marked").hidden = false;
};
const showNear = (nearest) => {
  at("near").hidden = !nearest.length;
  at("near-rows").replaceChildren(...nearest.map((near) => {
    const share = node("span", { className: "id" }, ` ${(100 * near.weight).toFixed(1)}% of the answer`);
    if ("label" in near) return node("li", {}, `Name of the label “${near.name || near.label}”`, share);
    const labels = (near.labels || []).map((label) => label.name || label.id).join(", ");
    return node("li", {}, node("strong", {}, near.id || `row ${near.row}`), share,
      node("div", {}, near.row && typeof near.row === "object" ? short(textOf(near.row)) : ""),
      node("div", { className: "soft" }, labels && `Labels: ${labels}`));
  }));
};

const showModel = async () => {
  model = await ask("api/model");
  at("name").textContent = `${model.name}, version ${model.version}`;
  document.title = `Try ${model.name}`;
  const follows = model.alias ? [`follows the alias ${model.alias}`] : [];
  at("about").textContent = [model.description.split("\n")[0], ...follows].filter(Boolean).join(" · ");
  at("bag-choice").hidden = !model.bags;
  at("per-label-choice").hidden = !model.thresholds;
  [at("row-label").textContent, at("hint").textContent] = HINTS[model.form];
};
const start = async () => {
  await showModel();
  examples = await ask("api/rows");
  at("choice").hidden = !examples.length;
  at("example").append(...examples.map((one, place) =>
    node("option", { value: place }, short(`${one.id}: ${textOf(one.row)}`))));
};
at("form").addEventListener("submit", (event) => { event.preventDefault(); suggest(); });
at("row").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); suggest(); }
});
at("row").addEventListener("input", () => { at("example").value = ""; });
at("example").addEventListener("change", () => {
  const example = examples[at("example").value];
  if (!example) return;
  at("row").value = textOf(example.row);
  suggest();
});
at("threshold").addEventListener("input", applyThreshold);
start().catch((error) => say(error.message, true));
