// Puts the page together: the legend, sorting, copies of the tables, the theme, printing, and following a run.

function legend() {
  const bar = document.getElementById("legend");
  bar.hidden = DATA.methods.length < 2;
  bar.replaceChildren(
    ...DATA.methods.map((method, at) => {
      const button = element(
        "button",
        {
          type: "button",
          onclick: () => {
            if (!hidden.delete(method.name)) hidden.add(method.name);
            button.setAttribute("aria-pressed", String(!hidden.has(method.name)));
            redraw();
          },
        },
        swatch(at),
        element("span", { textContent: method.personalised ? `${method.name} (own models)` : method.name }),
      );
      button.setAttribute("aria-pressed", String(!hidden.has(method.name)));
      return button;
    }),
  );
  for (const head of document.querySelectorAll("th[data-method]")) {
    const at = DATA.methods.findIndex((method) => method.name === head.dataset.method);
    head.querySelector(".swatch")?.remove();
    if (at >= 0) head.prepend(swatch(at));
  }
}

/** Heads of the small tables become buttons that sort their rows. */
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.value !== undefined ? Number(cell.dataset.value) : cell.textContent;
  };
  const compared = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  heads.forEach((head, at) => {
    const button = element(
      "button",
      {
        type: "button",
        onclick: () => {
          const down = head.getAttribute("aria-sort") === "ascending";
          heads.forEach((one) => one.removeAttribute("aria-sort"));
          head.setAttribute("aria-sort", down ? "descending" : "ascending");
          const rows = [...table.tBodies[0].rows].sort(
            (a, b) => (down ? -1 : 1) * compared(value(a, at), value(b, at)),
          );
          table.tBodies[0].append(...rows);
        },
      },
      ...head.childNodes,
    );
    head.replaceChildren(button);
  });
}

function copies() {
  const bar = document.querySelector("[data-tables]");
  if (!bar) return;
  bar.hidden = false;
  const names = { md: "Markdown", tex: "LaTeX", csv: "CSV" };
  bar.replaceChildren(
    "Save this table as",
    ...Object.entries(DATA.tables).map(([ending, text]) =>
      element("button", {
        type: "button",
        textContent: names[ending],
        onclick: () => {
          const link = element("a", {
            href: URL.createObjectURL(new Blob([text], { type: "text/plain" })),
            download: `fairness.${ending}`,
          });
          link.click();
          setTimeout(() => URL.revokeObjectURL(link.href), 10000);
        },
      }),
    ),
  );
}

function thinning() {
  const place = document.querySelector("#curves .grid");
  if (!place || !DATA.thinned.length) return;
  place.after(element("p", { className: "notes", id: "thinned", textContent: DATA.thinned.join(" ") }));
}

function coefficientTools() {
  const bar = document.querySelector('[data-chooser="method"]');
  const names = DATA.methods.filter((method) => method.coefficients).map((method) => method.name);
  if (!bar) return;
  if (names.length < 2) {
    bar.hidden = true;
    return;
  }
  const first = names.includes(chosen.coefficients)
    ? chosen.coefficients
    : (names.find((name) => name !== DATA.reference) ?? names[0]);
  chosen.coefficients = first;
  bar.replaceChildren(
    choice("Method", names, names.indexOf(first), (at) => {
      chosen.coefficients = names[at];
      draw("coefficients");
    }),
  );
}

function start() {
  tables = [];
  document.getElementById("noscript")?.remove();
  legend();
  for (const table of document.querySelectorAll("main table:not(.clients)")) sortable(table);
  copies();
  thinning();
  coefficientTools();
  startClients();
  watchPictures();
}

// Theme

const theme = document.getElementById("theme");
const THEMES = { "": "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  theme.textContent = THEMES[name];
  try {
    localStorage.setItem("adafed-theme", name);
  } catch {
    /* a page from disk may have no storage */
  }
  legend();
  redraw();
}

theme.hidden = false;
theme.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length]);
});
wantsDark.addEventListener("change", () => {
  legend();
  redraw();
});

addEventListener("beforeprint", () => {
  printing = true;
  legend();
  for (const place of document.querySelectorAll("[data-picture]")) draw(place.dataset.picture);
});
addEventListener("afterprint", () => {
  printing = false;
  legend();
  redraw();
});
document.getElementById("client").addEventListener("click", (event) => {
  if (event.target === event.currentTarget) event.currentTarget.close();
});

// A run that is going on: what is newer takes the place of what is here, and what the reader has chosen stays.

async function follow() {
  const told = document.getElementById("live");
  told.hidden = false;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 2000));
    try {
      const answer = await fetch(`live?seen=${encodeURIComponent(DATA.live)}`, { cache: "no-store" });
      if (answer.status === 204) {
        told.textContent = "live";
        continue;
      }
      if (!answer.ok) throw new Error(answer.statusText);
      const newer = await answer.json();
      const scroll = scrollY;
      DATA = newer.data;
      document.getElementById("main").innerHTML = newer.main;
      document.getElementById("facts").textContent = newer.facts;
      start();
      for (const place of document.querySelectorAll("[data-picture]"))
        if (place.getBoundingClientRect().top < innerHeight * 1.5) draw(place.dataset.picture);
      scrollTo({ top: scroll, behavior: "instant" });
      told.textContent = "live";
    } catch {
      told.textContent = "no longer served";
      if (!document.hidden) continue;
    }
  }
}

let stored = "";
try {
  stored = localStorage.getItem("adafed-theme") ?? "";
} catch {
  /* as above */
}
if (stored in THEMES && stored) {
  document.documentElement.dataset.theme = stored;
  theme.textContent = THEMES[stored];
}
start();
if (DATA.live !== null) follow();
document.documentElement.dataset.ready = "true";
