"use strict";

// The figures of the page, drawn by uPlot. Colours come from the style sheet, so they follow light and dark.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

const two = (number) => String(number).padStart(2, "0");

// Local times of day; the date where a new one begins.
function clock(times) {
  const seconds = times.length > 1 && times[1] - times[0] < 60;
  let day = "";
  return times.map((time) => {
    const at = new Date(1000 * time);
    const words = two(at.getHours()) + ":" + two(at.getMinutes()) + (seconds ? ":" + two(at.getSeconds()) : "");
    const date = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
    const first = day === "";
    const same = date === day;
    day = date;
    return same || (first && date === today()) ? words : words + "\n" + date;
  });
}

function today() {
  const at = new Date();
  return at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
}

function axes(labels) {
  return labels.map((label) => ({
    label: label,
    stroke: colour("note"),
    grid: { stroke: colour("grid"), width: 1 },
    ticks: { stroke: colour("grid"), width: 1 },
    labelSize: 20,
    size: label === labels[0] ? 44 : 58,
  }));
}

function sizeOf(place) {
  return { width: Math.max(260, place.clientWidth), height: 240 };
}

// A figure shows `empty` until there is something to draw.
class Figure {
  constructor(place, empty) {
    this.place = place;
    this.empty = empty;
    this.plot = null;
    new ResizeObserver(() => this.plot && this.plot.setSize(sizeOf(place))).observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  replace(options, data) {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    this.place.replaceChildren();
    if (!data || data[0].length === 0) {
      const words = document.createElement("p");
      words.className = "empty";
      words.textContent = this.empty;
      this.place.append(words);
      return;
    }
    this.plot = new uPlot({ ...sizeOf(this.place), ...options }, data, this.place);
  }
}

// Nodes over time, stacked by owner.
class NodesOverTime extends Figure {
  constructor(place) {
    super(place, "No node has been idle so far.");
    this.use = null;
    this.shape = "";
    // How far the controller's clock is ahead of the browser's, in seconds.
    this.ahead = 0;
    setInterval(() => this.moveOn(), 1000);
  }

  load(use) {
    this.use = use;
    if (use.time_s.length) this.ahead = use.time_s[use.time_s.length - 1] - Date.now() / 1000;
    this.draw();
  }

  // The figure ends now.
  moveOn() {
    const use = this.use;
    if (!use || use.time_s.length < 2 || document.hidden) return;
    const now = Date.now() / 1000 + this.ahead;
    if (now > use.time_s[use.time_s.length - 2]) use.time_s[use.time_s.length - 1] = now;
    this.draw();
  }

  // A point says who has the nodes from now on: it ends the last one, and begins its own.
  add(point) {
    const use = this.use;
    if (!use || use.time_s.length === 0) return false;
    const names = new Set(use.jobs);
    let others = point.other_jobs;
    for (const [job, count] of Object.entries(point.jobs)) {
      if (!names.has(job) && use.jobs.length < 8) return false;
      if (!names.has(job)) others += count;
    }
    const counts = [...use.jobs.map((job) => point.jobs[job] || 0), others, point.booting, point.held, point.idle];
    // The last point only said that nothing had changed until then.
    use.time_s.pop();
    use.counts.forEach((column) => column.pop());
    const last = use.counts.map((column) => column[column.length - 1]);
    if (use.time_s.length === 0 || last.some((count, i) => count !== counts[i])) {
      use.time_s.push(point.time_s);
      use.counts.forEach((column, i) => column.push(counts[i]));
    }
    use.time_s.push(Math.max(point.time_s, Date.now() / 1000 + this.ahead));
    use.counts.forEach((column, i) => column.push(counts[i]));
    this.draw();
    return true;
  }

  draw() {
    const use = this.use;
    if (!use || use.time_s.length === 0) {
      this.shape = "";
      this.replace(null, null);
      return;
    }
    const shown = use.owners.map((_, i) => i).filter((i) => i < use.jobs.length || use.counts[i].some((count) => count > 0));
    const total = use.time_s.map(() => 0);
    const stacked = shown.map((i) => use.counts[i].map((count, at) => (total[at] += count)));
    // uPlot draws the first series lowest, and each is filled down to zero: so the tallest comes first.
    const order = shown.map((_, i) => i).reverse();
    const data = [use.time_s, ...order.map((i) => stacked[i])];
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const shape = JSON.stringify([shown.map((i) => use.owners[i]), dark]);
    if (this.plot && this.shape === shape) {
      this.plot.setData(data);
      return;
    }
    this.shape = shape;
    const fills = { "other jobs": "other", booting: "booting", held: "held", idle: "idle" };
    const series = order.map((i) => {
      const owner = use.owners[shown[i]];
      const fill = colour(shown[i] < use.jobs.length ? "job-" + shown[i] : fills[owner]);
      return {
        label: owner,
        stroke: fill,
        fill: fill,
        width: 1,
        points: { show: false },
        paths: uPlot.paths.stepped({ align: 1 }),
        value: (_, __, ___, at) => (at === null ? use.counts[shown[i]][use.time_s.length - 1] : use.counts[shown[i]][at]),
      };
    });
    this.replace({
      series: [{ label: "time", value: (_, time) => (time === null ? "now" : clock([time, time + 1])[0]) }, ...series],
      axes: axes(["time", "nodes"]).map((axis, i) => (i === 0 ? { ...axis, values: (_, times) => clock(times) } : axis)),
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
      cursor: { drag: { x: false, y: false } },
    }, data);
  }
}

// The loss by step.
class LossCurve extends Figure {
  constructor(place) {
    super(place, "No loss has been noted yet.");
    this.points = { step: [], loss: [] };
  }

  load(points) {
    this.points = points;
    this.draw();
  }

  add(point) {
    const { step, loss } = this.points;
    if (point.loss === null) return true;
    // Steps that are done again replace what was there.
    while (step.length && step[step.length - 1] >= point.step) {
      step.pop();
      loss.pop();
    }
    step.push(point.step);
    loss.push(point.loss);
    this.draw();
    return true;
  }

  draw() {
    this.replace({
      series: [{ label: "step" }, { label: "loss", stroke: colour("job-0"), width: 1.5, points: { show: this.points.step.length < 3 } }],
      axes: axes(["step", "loss"]),
      scales: { x: { time: false } },
      cursor: { drag: { x: false, y: false } },
    }, [this.points.step, this.points.loss]);
  }
}

// The throughput by number of nodes: the curve, its band, and what was measured.
class ScalingCurve extends Figure {
  constructor(place) {
    super(place, "Nothing is known of its scaling yet.");
    this.curve = { nodes: [], rate: [], low: [], high: [], measured: [] };
  }

  load(curve) {
    this.curve = curve;
    this.draw();
  }

  draw() {
    const { nodes, rate, low, high, measured } = this.curve;
    const all = [...new Set([...nodes, ...measured.map((point) => point[0])])].sort((a, b) => a - b);
    const align = (xs, ys) => {
      const found = new Map(xs.map((x, i) => [x, ys[i]]));
      return all.map((x) => (found.has(x) ? found.get(x) : null));
    };
    const band = colour("job-0");
    const line = (label, width) => ({ label: label, stroke: band, width: width, spanGaps: true, points: { show: false } });
    this.replace({
      series: [
        { label: "nodes" },
        line("high", 0.5),
        line("low", 0.5),
        line("samples/s", 2),
        { label: "measured", stroke: colour("job-1"), width: 0, paths: () => null, points: { show: true, size: 8, fill: colour("job-1") } },
      ],
      bands: [{ series: [1, 2], fill: band + "33" }],
      axes: axes(["nodes", "samples/s"]),
      scales: { x: { time: false }, y: { range: (_, __, most) => [0, Math.max(1e-9, most * 1.05)] } },
      cursor: { drag: { x: false, y: false } },
    }, [all, align(nodes, high), align(nodes, low), align(nodes, rate), align(measured.map((p) => p[0]), measured.map((p) => p[1]))]);
  }
}
