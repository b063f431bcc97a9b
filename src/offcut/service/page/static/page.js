"use strict";

// Keeps the figures up to date, and says whether the page is connected. htmx puts in the parts that are HTML.

const kinds = { use: NodesOverTime, loss: LossCurve, curve: ScalingCurve };
const figures = new Map();

async function load(kind) {
  const { figure, source } = figures.get(kind);
  const answer = await fetch(source, { credentials: "same-origin" });
  if (answer.ok) figure.load(await answer.json());
}

for (const place of document.querySelectorAll("[data-figure]")) {
  const kind = place.dataset.figure;
  figures.set(kind, { figure: new kinds[kind](place), source: place.dataset.source });
  load(kind);
}

function say(state, words) {
  const place = document.getElementById("connection");
  if (place.dataset.state === state) return;
  place.dataset.state = state;
  place.textContent = words;
}

if (!document.querySelector("[sse-connect]")) say("none", "");

document.body.addEventListener("htmx:sseOpen", () => {
  // What was missed while there was no connection is in the figures' numbers.
  if (document.getElementById("connection").dataset.state === "lost") figures.forEach((_, kind) => load(kind));
  say("live", "live");
});
document.body.addEventListener("htmx:sseError", () => say("lost", "connection lost, trying again"));

// Parts of figures are numbers: they are not put into the page.
document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
  const kind = event.detail.type;
  if (!figures.has(kind)) return;
  event.preventDefault();
  const { figure } = figures.get(kind);
  if (!figure.add || !figure.add(JSON.parse(event.detail.data))) load(kind);
});
