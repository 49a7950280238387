// Every client: a table that sorts, searches and turns pages, one client's own curve, and who gained and who paid.

const ROWS = 25;
const MOST_MARKS = 2500; // in one picture
const view = { federation: 0, method: null, key: "accuracy:0", down: false, query: "", page: 0 };
let tables = []; // federations with their lists unpacked

function openFederation(at) {
  if (!tables[at]) {
    const given = DATA.federations[at];
    tables[at] = {
      ...given,
      test: unpacked(given.test, "u4"),
      train: unpacked(given.train, "f4"),
      methods: given.methods.map((one) => ({
        ...one,
        name: DATA.methods[one.method].name,
        accuracy: unpacked(one.accuracy, "f4"),
        loss: unpacked(one.loss, "f4"),
        coefficient: unpacked(one.coefficient, "f4"),
        drawn: unpacked(one.drawn, "u4"),
        dropped: unpacked(one.dropped, "u4"),
      })),
    };
  }
  return tables[at];
}

const current = () => openFederation(Math.min(view.federation, DATA.federations.length - 1));

/** The method whose losses, draws and coefficients are shown. */
function detailed() {
  const { methods } = current();
  return (
    methods.find((one) => one.name === view.method) ?? methods.find((one) => one.name !== DATA.reference) ?? methods[0]
  );
}

function columns() {
  const now = current();
  const own = detailed();
  const anyDropped = now.methods.some((one) => one.dropped.some((times) => times > 0));
  return [
    { key: "client", label: "client" },
    ...now.methods.map((one, at) => ({
      key: `accuracy:${at}`,
      label: `${one.name} %`,
      of: (k) => one.accuracy[k],
      digits: 1,
      bar: true,
    })),
    { key: "loss", label: "loss", of: (k) => own.loss[k], digits: 3 },
    { key: "test", label: "test samples", of: (k) => now.test[k], digits: 0 },
    { key: "train", label: "train samples", of: (k) => now.train[k], digits: 0 },
    ...(now.labels
      ? [
          {
            key: "labels",
            label: "labels held",
            of: (k) => now.labels[k].length / 2,
            text: (k) => labelsOf(now.labels[k]),
          },
        ]
      : []),
    { key: "drawn", label: "drawn", of: (k) => own.drawn[k], digits: 0 },
    { key: "coefficient", label: "mean coefficient", of: (k) => own.coefficient[k], digits: 3 },
    ...(anyDropped ? [{ key: "dropped", label: "dropped", of: (k) => own.dropped[k], digits: 0 }] : []),
  ];
}

function labelsOf(pairs, most = 3) {
  const told = [];
  for (let at = 0; at < pairs.length && told.length < most; at += 2) told.push(`${pairs[at]} (${pairs[at + 1]})`);
  const more = pairs.length / 2 - told.length;
  return told.join(", ") + (more > 0 ? ` and ${more} more label${more === 1 ? "" : "s"}` : "") || "–";
}

function order() {
  const { ids } = current();
  const query = view.query.trim().toLowerCase();
  const found = [];
  for (let k = 0; k < ids.length; k++) if (!query || ids[k].toLowerCase().includes(query)) found.push(k);
  const column = columns().find((one) => one.key === view.key) ?? columns()[1];
  const way = view.down ? -1 : 1;
  if (!column.of) return view.down ? found.reverse() : found; // ids are in their order already
  const last = (value) => (known(value) ? value : way * Infinity);
  return found.sort((a, b) => way * (last(column.of(a)) - last(column.of(b))) || a - b);
}

function drawTable() {
  const holder = document.getElementById("client-table");
  const picked = columns();
  const found = order();
  const pages = Math.max(1, Math.ceil(found.length / ROWS));
  view.page = Math.min(view.page, pages - 1);
  const head = element(
    "tr",
    {},
    ...picked.map((column) => {
      const sorted = column.key === view.key;
      const cell = element(
        "th",
        { scope: "col" },
        element("button", { type: "button", textContent: column.label, onclick: () => sortBy(column.key) }),
      );
      if (sorted) cell.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      return cell;
    }),
  );
  const { ids } = current();
  const lines = found.slice(view.page * ROWS, (view.page + 1) * ROWS).map((k) =>
    element(
      "tr",
      {},
      ...picked.map((column) => {
        if (column.key === "client") {
          return element(
            "th",
            { scope: "row" },
            element("button", { type: "button", textContent: ids[k], title: ids[k], onclick: () => openClient(k) }),
          );
        }
        const value = column.of(k);
        const cell = element("td", { textContent: column.text ? column.text(k) : shown(value, column.digits) });
        if (column.bar && known(value)) cell.setAttribute("style", `--v:${value.toFixed(1)}`);
        return cell;
      }),
    ),
  );
  const focus = document.activeElement?.closest?.("#client-table thead") ? document.activeElement.textContent : null;
  holder.replaceChildren(
    element("table", { className: "clients" }, element("thead", {}, head), element("tbody", {}, ...lines)),
  );
  if (focus !== null) [...holder.querySelectorAll("thead button")].find((one) => one.textContent === focus)?.focus();
  const from = found.length ? view.page * ROWS + 1 : 0;
  const last = Math.min(found.length, (view.page + 1) * ROWS);
  const told = `${from}–${last} of ${many(found.length)} clients`;
  const turn = (by) => () => {
    view.page += by;
    drawTable();
  };
  const bar = document.querySelector("[data-pages]");
  bar.hidden = false;
  const back = element("button", {
    type: "button",
    textContent: "Previous",
    disabled: view.page === 0,
    onclick: turn(-1),
  });
  const on = element("button", {
    type: "button",
    textContent: "Next",
    disabled: view.page >= pages - 1,
    onclick: turn(1),
  });
  const held = document.activeElement?.closest?.("[data-pages]") ? document.activeElement.textContent : null;
  bar.replaceChildren(back, on, element("span", { role: "status", id: "client-count", textContent: told }));
  if (held === "Previous") (back.disabled ? on : back).focus();
  if (held === "Next") (on.disabled ? back : on).focus();
}

function sortBy(key) {
  view.down = view.key === key ? !view.down : false;
  view.key = key;
  view.page = 0;
  drawTable();
}

function choice(label, names, selected, change) {
  const list = element(
    "select",
    { onchange: (event) => change(Number(event.target.value)) },
    ...names.map((name, at) => element("option", { value: String(at), textContent: name, selected: at === selected })),
  );
  return element("label", {}, label, list);
}

function clientTools() {
  const bar = document.querySelector("[data-clients]");
  if (!bar) return;
  const now = current();
  const names = now.methods.map((one) => one.name);
  bar.hidden = false;
  const search = element("input", {
    type: "search",
    id: "client-search",
    value: view.query,
    autocomplete: "off",
    oninput: (event) => {
      view.query = event.target.value;
      view.page = 0;
      drawTable();
    },
  });
  bar.replaceChildren(
    ...[
      element("label", {}, "Find a client", search),
      DATA.federations.length > 1
        ? choice(
            "Clients of",
            DATA.federations.map((one) => one.label),
            view.federation,
            (at) => {
              view.federation = at;
              view.page = 0;
              startClients();
            },
          )
        : null,
      names.length > 1
        ? choice("Loss, draws and coefficients under", names, names.indexOf(detailed().name), (at) => {
            view.method = names[at];
            drawTable();
          })
        : null,
    ].filter(Boolean),
  );
}

function startClients() {
  if (!DATA.federations.length || !document.getElementById("client-table")) return;
  document.querySelector("[data-static]")?.remove();
  clientTools();
  drawTable();
  gainedTools();
  if (drawn.has("gained")) draw("gained");
}

// One client

function openClient(k) {
  const now = current();
  const dialog = document.getElementById("client");
  const place = element("div", {
    className: "picture",
    role: "group",
    id: "client-picture",
    ariaLabel: "Accuracy by round",
  });
  const facts = [
    ["test samples", String(now.test[k])],
    ["train samples", shown(now.train[k], 0)],
  ];
  if (now.labels) facts.push(["labels held (samples)", labelsOf(now.labels[k], 100)]);
  for (const one of now.methods) {
    const why = Object.entries(one.reasons[k] ?? {})
      .map(([reason, times]) => `${reason} (${times})`)
      .join("; ");
    const numbers = [
      `accuracy ${shown(one.accuracy[k])} %`,
      `loss ${shown(one.loss[k], 3)}`,
      `drawn ${one.drawn[k]} times`,
      `mean coefficient ${shown(one.coefficient[k], 3)}`,
    ];
    facts.push([one.name, numbers.join(", ") + (why ? `; ${why}` : "")]);
  }
  dialog.replaceChildren(
    element(
      "header",
      {},
      element("h2", { id: "client-title", textContent: `Client ${now.ids[k]}` }),
      element("button", { type: "button", textContent: "Close", onclick: () => dialog.close() }),
    ),
    element(
      "dl",
      {},
      ...facts.flatMap(([term, told]) => [element("dt", { textContent: term }), element("dd", { textContent: told })]),
    ),
    place,
  );
  dialog.showModal();
  const traces = now.methods.flatMap((one) =>
    one.runs.flatMap((run) => {
      const values = (run.unpacked ??= unpacked(run.accuracies, "u2"));
      const y = run.at.map((_, row) => {
        const v = values[row * now.ids.length + k];
        return v === MISSING ? null : v / 100;
      });
      const method = { ...DATA.methods[one.method], at: one.method };
      return line(method, { x: run.at, y }, "%{y:.1f} %", {
        name: one.runs.length > 1 ? `${full(method)}, seed ${run.seed}` : full(method),
      });
    }),
  );
  Plotly.newPlot(place, traces, frame("round", "test accuracy, %", { yaxis: { range: [-2, 102] } }), still);
}

// Who gained and who paid

function pair() {
  const { methods } = current();
  const at = (name, other) => {
    const found = methods.findIndex((one) => one.name === name);
    return found < 0 ? other : found;
  };
  const from = at(chosen.from ?? DATA.reference, 0);
  const to = at(
    chosen.to ?? "AdaFed",
    methods.findIndex((_, k) => k !== from),
  );
  return [methods[from], methods[to === from ? methods.findIndex((_, k) => k !== from) : to]];
}

function gainedTools() {
  const bar = document.querySelector('[data-chooser="pair"]');
  if (!bar) return;
  const names = current().methods.map((one) => one.name);
  bar.hidden = names.length < 2;
  if (names.length < 2) return;
  const [from, to] = pair();
  const set = (key) => (at) => {
    chosen[key] = names[at];
    gainedTools();
    draw("gained");
  };
  bar.replaceChildren(
    choice("From", names, names.indexOf(from.name), set("from")),
    choice("to", names, names.indexOf(to.name), set("to")),
    element("span", { role: "status", textContent: gainedWords(from, to) }),
  );
}

function gainedWords(from, to) {
  const changes = [...from.accuracy].map((value, k) => to.accuracy[k] - value).filter(known);
  const up = changes.filter((value) => value > 0);
  const down = changes.filter((value) => value < 0);
  const by = (values) => {
    if (!values.length) return "";
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return `, by ${Math.abs(mean).toFixed(1)} points on average`;
  };
  const same = changes.length - up.length - down.length;
  return [
    `${many(up.length)} of ${many(changes.length)} clients are better off under ${to.name}${by(up)}`,
    `${many(down.length)} worse off${by(down)}`,
    `${many(same)} as before.`,
  ].join("; ");
}

function gainedPicture() {
  const now = current();
  if (now.methods.length < 2) return null;
  const c = colours();
  const [from, to] = pair();
  let clients = now.ids.map((_, k) => k).filter((k) => known(from.accuracy[k]) && known(to.accuracy[k]));
  const all = clients.length;
  if (all > MOST_MARKS) {
    // those that changed most, and every so-manieth of the others
    const change = (k) => Math.abs(to.accuracy[k] - from.accuracy[k]);
    const sorted = [...clients].sort((a, b) => change(b) - change(a));
    const most = sorted.slice(0, MOST_MARKS / 5),
      rest = sorted.slice(MOST_MARKS / 5);
    const step = Math.ceil(rest.length / ((MOST_MARKS * 4) / 5));
    clients = [...most, ...rest.filter((_, at) => at % step === 0)];
  }
  const group = (name, test, color, symbol) => {
    const these = clients.filter((k) => test(to.accuracy[k] - from.accuracy[k]));
    return {
      x: these.map((k) => from.accuracy[k]),
      y: these.map((k) => to.accuracy[k]),
      customdata: these,
      text: these.map((k) => plain(now.ids[k])),
      name,
      mode: "markers",
      marker: {
        color,
        symbol,
        size: clients.length > 400 ? 6 : 9,
        opacity: 0.75,
        // an open mark is nothing but its line, a filled one's parts it from its neighbours
        line: { color: c.raised, width: symbol.endsWith("-open") ? 1.8 : 0.5 },
      },
      hovertemplate: "client %{text}: %{x:.1f} % → %{y:.1f} %<extra></extra>",
    };
  };
  const dark = isDark();
  const lowest = Math.min(...clients.map((k) => Math.min(from.accuracy[k], to.accuracy[k])));
  const range = [Math.max(-2, lowest - 5), 102];
  return {
    label: gainedWords(from, to),
    data: [
      group("gained", (d) => d > 0, dark ? "#5ab4f0" : "#0072b2", "triangle-up"),
      group("paid", (d) => d < 0, dark ? "#ff8a3d" : "#c85200", "triangle-down-open"),
      group("as before", (d) => d === 0, c.soft, "circle-open"),
    ],
    layout: frame(`accuracy under ${plain(from.name)}, %`, `under ${plain(to.name)}, %`, {
      hovermode: "closest",
      xaxis: { range },
      yaxis: { range },
      shapes: [
        {
          type: "line",
          x0: 0,
          y0: 0,
          x1: 100,
          y1: 100,
          line: { color: c.soft, width: 1, dash: "dot" },
          layer: "below",
        },
      ],
      annotations: [
        {
          xref: "paper",
          yref: "paper",
          x: 0.01,
          y: 0.99,
          xanchor: "left",
          yanchor: "top",
          showarrow: false,
          text: "▲ gained",
          font: { color: c.soft },
          bgcolor: c.raised,
        },
        {
          xref: "paper",
          yref: "paper",
          x: 0.99,
          y: 0.01,
          xanchor: "right",
          yanchor: "bottom",
          showarrow: false,
          text: "▽ paid",
          font: { color: c.soft },
          bgcolor: c.raised,
        },
        ...(all > clients.length
          ? [
              {
                xref: "paper",
                yref: "paper",
                x: 0.5,
                y: 1,
                xanchor: "center",
                yanchor: "top",
                showarrow: false,
                bgcolor: c.raised,
                font: { color: c.soft, size: 12 },
                text: `${many(clients.length)} of ${many(all)} clients are drawn: who changed most, and some others`,
              },
            ]
          : []),
      ],
    }),
  };
}
