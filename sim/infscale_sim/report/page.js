// Hides policies, and shows the values of all lines at one time: under the pointer, or as the slider says.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const charts = [...document.querySelectorAll("svg.chart")];
  const values = [...document.querySelectorAll(".value")];
  const clock = document.querySelector(".clock");
  const slider = clock.querySelector("input");
  const output = clock.querySelector("output");

  const valueAt = ([times, numbers], time) => {
    let low = 0;
    let high = times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low ? numbers[low - 1] : null;
  };

  const written = (value, unit) => {
    if (value === null) return "–";
    if (value < 0) return "never";
    if (unit === "count") return Math.round(value).toLocaleString("en");
    if (unit === "rate") return `${Number(value.toPrecision(3))}/s`;
    return value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(value < 100 ? 1 : 0)} s`;
  };

  const duration = (seconds) => {
    const sizes = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    const first = Math.max(0, sizes.findIndex(([size]) => seconds >= size));
    let rest = seconds >= 1 ? Math.round(seconds) : 0;
    const parts = sizes.slice(seconds < 1 ? 3 : first).slice(0, 2).map(([size, name]) => {
      const count = Math.floor(rest / size);
      rest -= count * size;
      return `${count} ${name}`;
    });
    return parts.join(" ");
  };

  const show = (time) => {
    document.body.classList.add("reading");
    const x = data.left + (time / data.horizon) * (data.right - data.left);
    for (const chart of charts) chart.querySelector(".cursor").setAttribute("transform", `translate(${x.toFixed(1)})`);
    data.values.forEach(([line, unit], index) => {
      values[index].textContent = written(valueAt(data.lines[line], time), unit);
    });
    slider.value = Math.round((1000 * time) / data.horizon);
    output.textContent = `at ${duration(time)}`;
    slider.setAttribute("aria-valuetext", duration(time));
  };

  for (const chart of charts) {
    const look = (event) => {
      const box = chart.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * data.width;
      show(Math.min(1, Math.max(0, (x - data.left) / (data.right - data.left))) * data.horizon);
    };
    chart.addEventListener("pointermove", look);
    chart.addEventListener("pointerdown", look);
  }
  slider.addEventListener("input", () => show((slider.value / 1000) * data.horizon));

  const choice = document.querySelector("fieldset");
  choice.addEventListener("change", (event) => {
    for (const part of document.querySelectorAll(`[data-policy="${event.target.value}"]`)) {
      part.hidden = !event.target.checked;
    }
  });
  choice.hidden = clock.hidden = false;
})();
