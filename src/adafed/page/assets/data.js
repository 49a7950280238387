// What the page was given, and small tools that every part uses.

let DATA = JSON.parse(document.getElementById("data").textContent);

const MISSING = 65535; // of accuracies in hundredths of a percent
const hidden = new Set(); // names of methods switched off

const KINDS = { u2: Uint16Array, u4: Uint32Array, f4: Float32Array };

/** A packed list as a typed array. */
function unpacked(text, kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new KINDS[kind](bytes.buffer);
}

/** An element with properties and children; text is only ever set as text. */
function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Plotly reads tags in names; these are names, not tags. */
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const many = (count) => count.toLocaleString("en");
const shown = (value, digits = 1) => (known(value) ? value.toFixed(digits) : "–");

// How methods look: colour, dashes and mark, so that they can be told apart in grey too.

const LIGHT = [
  "#1c1e21",
  "#c85200",
  "#0072b2",
  "#8a6100",
  "#00795a",
  "#a8497f",
  "#1f7fae",
  "#6b6f75",
  "#8b4513",
  "#6a5acd",
];
const DARK = [
  "#f4f4f4",
  "#ff8a3d",
  "#5ab4f0",
  "#f0b83c",
  "#35c89d",
  "#e596c4",
  "#9ad6f9",
  "#a5abb3",
  "#d39a6b",
  "#aaa0f2",
];
const DASHES = [
  "solid",
  "dash",
  "dot",
  "dashdot",
  "longdash",
  "longdashdot",
  "5px,2px",
  "2px,4px",
  "9px,2px,2px,2px",
  "3px,3px",
];
const MARKS = [
  "circle",
  "square",
  "triangle-up",
  "diamond",
  "triangle-down",
  "cross",
  "x",
  "star",
  "pentagon",
  "hourglass",
];
const STROKES = ["", "6 4", "2 3", "6 3 2 3", "9 4", "9 3 2 3", "5 2", "2 4", "9 2 2 2", "3 3"];

/** AdaFed comes first in black; others follow in their order. */
function places() {
  const names = DATA.methods.map((method) => method.name);
  const first = names.indexOf("AdaFed");
  let next = first < 0 ? 0 : 1;
  return names.map((_, at) => (at === first ? 0 : next++));
}

function look(at) {
  const place = places()[at];
  const slot = place % LIGHT.length;
  const turn = Math.floor(place / LIGHT.length);
  return {
    color: (isDark() ? DARK : LIGHT)[slot],
    dash: DASHES[(slot + 3 * turn) % DASHES.length],
    stroke: STROKES[(slot + 3 * turn) % STROKES.length],
    mark: MARKS[(slot + 5 * turn) % MARKS.length],
  };
}

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = {
  circle: "M18 7a4 4 0 1 1-8 0 4 4 0 1 1 8 0",
  square: "M10.5 3.5h7v7h-7z",
  "triangle-up": "M14 2.5l4.5 8h-9z",
  diamond: "M14 2l5 5-5 5-5-5z",
  "triangle-down": "M14 11.5l4.5-8h-9z",
  cross: "M12.5 2.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
  x: "M11 2.5l3 3 3-3 1.5 1.5-3 3 3 3-1.5 1.5-3-3-3 3-1.5-1.5 3-3-3-3z",
  star: "M14 1.5l1.6 3.6 4 .4-3 2.7.9 4-3.5-2.1-3.5 2.1.9-4-3-2.7 4-.4z",
  pentagon: "M14 2.5l4.8 3.5-1.8 5.5h-6L9.200 6z",
  hourglass: "M9.500 2.5h9l-9 9h9z",
};

function swatch(at) {
  const { color, stroke, mark } = look(at);
  const drawing = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "path");
  const shape = document.createElementNS(SVG, "path");
  drawing.setAttribute("class", "swatch");
  drawing.setAttribute("viewBox", "0 0 28 14");
  drawing.setAttribute("aria-hidden", "true");
  line.setAttribute("d", "M0 7h28");
  line.setAttribute("stroke", color);
  line.setAttribute("stroke-width", "2");
  line.setAttribute("stroke-dasharray", stroke);
  shape.setAttribute("d", SHAPES[mark]);
  shape.setAttribute("fill", color);
  drawing.append(line, shape);
  return drawing;
}

// Light and dark

const wantsDark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function isDark() {
  if (printing) return false;
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : wantsDark.matches;
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  if (printing)
    return {
      ink: "#000",
      soft: "#444",
      rule: "#ddd",
      line: "#888",
      raised: "#fff",
      shade: "rgba(0,0,0,.09)",
      font: of("--font"),
    };
  return {
    ink: of("--ink"),
    soft: of("--soft"),
    rule: of("--rule"),
    line: of("--line"),
    raised: of("--raised"),
    shade: of("--shade"),
    font: of("--font"),
  };
}
