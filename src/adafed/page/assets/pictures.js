// The pictures. Each is made when it comes into view, and again when a method is switched, or theme or data change.

const drawn = new Map(); // elements that have been drawn, by name
const chosen = { coefficients: null, from: null, to: null };
const touch = matchMedia("(pointer: coarse)").matches;
const still = {
  displaylogo: false,
  responsive: true,
  displayModeBar: touch ? false : "hover",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  toImageButtonOptions: { format: "svg" },
};

function frame(across, up, more = {}) {
  const c = colours();
  const axis = { gridcolor: c.rule, linecolor: c.line, tickcolor: c.line, zeroline: false, automargin: true };
  const { xaxis = {}, yaxis = {}, ...rest } = more;
  return {
    margin: { l: 56, r: 14, t: 34, b: 46 },
    autosize: true,
    showlegend: false,
    hovermode: "x unified",
    dragmode: touch ? false : "zoom",
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: c.font, size: 13, color: c.ink },
    modebar: { bgcolor: c.raised, color: c.soft, activecolor: c.ink },
    hoverlabel: {
      bgcolor: c.raised,
      bordercolor: c.line,
      font: { family: c.font, size: 13, color: c.ink },
      align: "left",
      namelength: -1,
    },
    xaxis: { ...axis, title: { text: across, standoff: 10 }, ...xaxis },
    yaxis: { ...axis, title: { text: up, standoff: 10 }, ...yaxis },
    ...rest,
  };
}

const visible = () =>
  DATA.methods.map((method, at) => ({ ...method, at })).filter((method) => !hidden.has(method.name));
const full = (method) => plain(method.personalised ? `${method.name} (own models)` : method.name);
const faint = (color, share) =>
  color +
  Math.round(255 * share)
    .toString(16)
    .padStart(2, "0");

/** A method's line, and below it the band over its seeds. */
function line(method, series, template, { width = 2, opacity = 1, dash = null, marks = true, name = null } = {}) {
  const { color, dash: own, mark } = look(method.at);
  const traces = [];
  if (series.low) {
    traces.push({
      x: [...series.x, ...[...series.x].reverse()],
      y: [...series.high, ...[...series.low].reverse()],
      fill: "toself",
      fillcolor: faint(color, 0.1),
      line: { width: 0 },
      mode: "lines",
      hoverinfo: "skip",
    });
  }
  traces.push({
    x: series.x,
    y: series.y,
    name: name ?? full(method),
    opacity,
    mode: marks ? "lines+markers" : "lines",
    line: { color, width: method.name === "AdaFed" ? width + 0.6 : width, dash: dash ?? own },
    marker: { color, symbol: mark, size: 7, maxdisplayed: 8 },
    hovertemplate: `${template}<extra>%{fullData.name}</extra>`,
  });
  return traces;
}

/** How long a beginning all names have in common, up to a comma or a bracket: what follows tells them apart. */
function sharedStart(names) {
  if (names.length < 2) return 0;
  let at = 0;
  while (names.every((name) => at < name.length && name[at] === names[0][at])) at++;
  return Math.max(
    0,
    ...[", ", "("].map(
      (mark) => names[0].slice(0, at).lastIndexOf(mark) + (names[0].slice(0, at).includes(mark) ? mark.length : 0),
    ),
  );
}

function curves(key, up, template, more = {}) {
  return () => ({
    data: visible().flatMap((method) => (method.curves[key] ? line(method, method.curves[key], template) : [])),
    layout: frame("round", up, more),
  });
}

/** Where the axis of accuracies begins: at the tens below the lowest, so that the differences have the picture. */
function floor(methods) {
  const lowest = Math.min(100, ...methods.flatMap((method) => method.sorted?.low ?? method.sorted?.y ?? []));
  return Math.max(0, 10 * Math.floor((lowest - 1) / 10));
}

const PICTURES = {
  sorted() {
    const c = colours();
    return {
      data: visible().flatMap((method) => (method.sorted ? line(method, method.sorted, "%{y:.1f} %") : [])),
      layout: frame("clients from the worst served on, %", "test accuracy, %", {
        xaxis: { range: [0, 100], hoverformat: ".0f" },
        yaxis: { range: [floor(visible()), 101] },
        shapes: [
          {
            type: "rect",
            xref: "x",
            yref: "paper",
            x0: 0,
            x1: 10,
            y0: 0,
            y1: 1,
            fillcolor: c.shade,
            line: { width: 0 },
            layer: "below",
          },
        ],
        annotations: [
          {
            x: 0.7,
            y: 1,
            xref: "x",
            yref: "paper",
            xanchor: "left",
            yanchor: "top",
            text: "worst<br>tenth",
            align: "left",
            showarrow: false,
            font: { size: 12, color: c.soft },
          },
        ],
      }),
    };
  },
  mean: curves("mean", "mean accuracy, %", "%{y:.1f} %"),
  worst: curves("worst_10", "worst 10 %, accuracy in %", "%{y:.1f} %"),
  spread: curves("loss_std", "standard deviation of losses", "%{y:.3g}", { yaxis: { rangemode: "tozero" } }),
  rho: curves("rho", "ρ, % of the round’s clients", "%{y:.0f} %", { yaxis: { range: [0, 103] } }),
  decrease: () => {
    const c = colours();
    const made = curves("mean_decrease", "mean decrease of the loss", "%{y:.3g}")();
    made.layout.shapes = [
      { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: c.soft, width: 1 }, layer: "below" },
    ];
    return made;
  },
  norm() {
    const methods = visible().filter((method) => method.curves.norm);
    const values = methods.flatMap((method) => method.curves.norm.y).filter((value) => value > 0);
    const wide = values.length > 0 && Math.max(...values) > 50 * Math.min(...values);
    return {
      data: methods.flatMap((method) => [
        ...line(method, method.curves.norm, "%{y:.3g}"),
        ...(method.curves.mean_norm
          ? line(method, { x: method.curves.mean_norm.x, y: method.curves.mean_norm.y }, "%{y:.3g}", {
              width: 1.4,
              opacity: 0.75,
              dash: "dot",
              marks: false,
              name: `${full(method)}: mean update`,
            })
          : []),
      ]),
      layout: frame("round", "length", {
        yaxis: wide ? { type: "log", exponentformat: "power" } : { rangemode: "tozero" },
      }),
    };
  },
  coefficients() {
    const c = colours();
    const with_ = DATA.methods.filter((method) => method.coefficients);
    const method = with_.find((one) => one.name === chosen.coefficients) ?? with_[0];
    if (!method) return null;
    const { color } = look(DATA.methods.indexOf(method));
    const { x, quantiles, negative, rounds } = method.coefficients;
    const [lowest, low, median, high, highest] = quantiles;
    const back = [...x].reverse();
    const band = (above, below, share) => ({
      x: [...x, ...back],
      y: [...above, ...[...below].reverse()],
      fill: "toself",
      fillcolor: faint(color, share),
      line: { width: 0 },
      mode: "lines",
      hoverinfo: "skip",
    });
    const one = (y, name, look_) => ({
      x,
      y,
      name,
      mode: "lines",
      line: { color, ...look_ },
      hovertemplate: "%{y:.3g}<extra>%{fullData.name}</extra>",
    });
    const below = x.map((_, at) => at).filter((at) => lowest[at] < 0);
    return {
      data: [
        band(highest, lowest, 0.1),
        band(high, low, 0.2),
        one(highest, "highest", { width: 1, dash: "dot" }),
        one(median, "median", { width: 2 }),
        one(lowest, "lowest", { width: 1, dash: "dot" }),
        {
          x: below.map((at) => x[at]),
          y: below.map((at) => lowest[at]),
          name: "below zero",
          mode: "markers",
          hoverinfo: "skip",
          marker: { symbol: "x", size: 7, color: isDark() ? "#ff8a3d" : "#c85200" },
        },
      ],
      layout: frame("round", "coefficient", {
        shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: c.ink, width: 1.2 } }],
        annotations: [
          {
            xref: "paper",
            yref: "paper",
            x: 1,
            y: 1,
            xanchor: "right",
            yanchor: "top",
            showarrow: false,
            font: { size: 12, color: c.soft },
            text: negative
              ? `negative in ${negative} of the seeds’ ${rounds} rounds (marked ×)`
              : `negative in none of the seeds’ ${rounds} rounds`,
          },
        ],
      }),
    };
  },
  histogram() {
    const middle = DATA.bins.slice(0, -1).map((low, at) => (low + DATA.bins[at + 1]) / 2);
    return {
      data: visible()
        .filter((method) => method.histogram)
        .flatMap((method) => {
          const traces = line(method, { x: middle, y: method.histogram }, "%{y:.1f} % of clients");
          traces.at(-1).line.shape = "hvh";
          return traces;
        }),
      layout: frame("test accuracy, %", "clients, %", { yaxis: { rangemode: "tozero" }, xaxis: { range: [0, 100] } }),
    };
  },
  cumulative() {
    return {
      data: visible()
        .filter((method) => method.sorted)
        .flatMap((method) => {
          const traces = line(
            method,
            // the sorted clients stand in the middle of their share each; with it they are so many
            { x: method.sorted.y, y: method.sorted.x.map((x) => x + 50 / method.sorted.x.length) },
            "%{y:.0f} % of clients have at most %{x:.1f} %",
          );
          traces.at(-1).line.shape = "hv";
          return traces;
        }),
      layout: frame("test accuracy, %", "clients with at most that, %", {
        hovermode: "closest",
        xaxis: { range: [0, 101] },
        yaxis: { range: [0, 101] },
      }),
    };
  },
  pareto() {
    const c = colours();
    const shared = sharedStart(DATA.methods.map((method) => method.name));
    const sides = ["top center", "bottom center", "middle right", "middle left"];
    const methods = visible().filter((method) => method.point.mean && method.point.worst_10);
    const at = (method) => [method.point.mean[0], method.point.worst_10[0]];
    const front = methods
      .filter(
        (one) =>
          !one.personalised &&
          !methods.some((other) => {
            const [m, w] = at(one),
              [om, ow] = at(other);
            return other !== one && !other.personalised && om >= m && ow >= w && (om > m || ow > w);
          }),
      )
      .sort((a, b) => at(a)[0] - at(b)[0]);
    return {
      data: [
        {
          x: front.map((one) => at(one)[0]),
          y: front.map((one) => at(one)[1]),
          mode: "lines",
          line: { color: c.soft, width: 1.5, dash: "dot" },
          hoverinfo: "skip",
        },
        ...methods.map((method) => {
          const { color, mark } = look(method.at);
          const bars = (pair) => ({
            type: "data",
            array: [pair[1]],
            visible: pair[1] > 0,
            color: faint(color, 0.5),
            thickness: 1.2,
            width: 3,
          });
          return {
            x: [at(method)[0]],
            y: [at(method)[1]],
            name: full(method),
            mode: methods.length > 6 ? "markers" : "markers+text",
            text: [plain(method.name.slice(shared))],
            textposition: sides[method.at % 4],
            textfont: { size: 12 },
            marker: { color, symbol: mark, size: 11, line: { color: c.raised, width: 1 } },
            cliponaxis: false,
            error_x: bars(method.point.mean),
            error_y: bars(method.point.worst_10),
            hovertemplate: "mean %{x:.1f} %, worst tenth %{y:.1f} %<extra>%{fullData.name}</extra>",
          };
        }),
      ],
      layout: frame("mean accuracy, %", "worst 10 %, accuracy in %", {
        hovermode: "closest",
        margin: { l: 56, r: 30, t: 26, b: 46 },
      }),
    };
  },
  gained() {
    return gainedPicture();
  },
};

function draw(name) {
  const place = document.querySelector(`[data-picture="${name}"]`);
  const made = place && PICTURES[name] ? PICTURES[name]() : null;
  if (!place) return;
  if (!made || made.data.every((trace) => !(trace.x ?? []).length)) {
    if (drawn.has(name)) Plotly.purge(place);
    place.replaceChildren(
      element("p", { textContent: "Nothing to draw: these runs did not record it, or no method is switched on." }),
    );
    drawn.set(name, place);
    return;
  }
  if (place.querySelector("p")) place.replaceChildren();
  if (made.label) place.setAttribute("aria-label", made.label);
  // The sheet's width is not the window's, and is not known yet when printing begins: two pictures fit in a row.
  if (printing) Object.assign(made.layout, { autosize: false, width: place.closest(".grid") ? 318 : 650, height: 300 });
  Plotly.react(place, made.data, made.layout, still);
  drawn.set(name, place);
}

const inView = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      inView.unobserve(entry.target);
      draw(entry.target.dataset.picture);
    }
  },
  { rootMargin: "300px" },
);

function watchPictures() {
  drawn.clear();
  for (const place of document.querySelectorAll("[data-picture]")) inView.observe(place);
}

function redraw() {
  for (const name of drawn.keys()) draw(name);
}
