// Runs in a page beside those of the site. Each page is opened in a frame, as wide as a window would be.
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition, what) {
  for (let turn = 0; turn < 2000; turn++) {
    const found = condition();
    if (found) return found;
    await pause(10);
  }
  throw new Error(`timed out: ${what}`);
}

async function opened(page) {
  document.body.replaceChildren();
  const frame = document.createElement("iframe");
  frame.style.cssText = "width: 1400px; height: 900px; border: 0";
  const loaded = new Promise((resolve) => (frame.onload = resolve));
  frame.src = page;
  document.body.append(frame);
  await loaded;
  // Colours change at once: a transition would be measured half way.
  const still = frame.contentDocument.createElement("style");
  still.textContent = "* { transition: none !important }";
  frame.contentDocument.head.append(still);
  return frame;
}

function choose(frame, scheme) {
  frame.contentDocument.body.dataset.mdColorScheme = scheme;
}

function rgba(text) {
  const numbers = text.match(/[\d.]+/g).map(Number);
  if (text.startsWith("color(srgb")) return [...numbers.slice(0, 3).map((n) => 255 * n), numbers[3] ?? 1];
  return [...numbers.slice(0, 3), numbers[3] ?? 1];
}

function over(front, back) {
  return [0, 1, 2].map((n) => front[n] * front[3] + back[n] * (1 - front[3]));
}

function luminance(colour) {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function background(element, style) {
  const layers = [];
  for (let one = element; one; one = one.parentElement) layers.push(rgba(style(one).backgroundColor));
  return layers.reverse().reduce((back, layer) => over(layer, back), [255, 255, 255]);
}

function contrast(element, style) {
  const back = background(element, style);
  const [a, b] = [over(rgba(style(element).color), back), back].map(luminance);
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

// What a reader of this page sees: whether it scrolls sideways, code that does, the text that is hardest to read.
function seen(frame) {
  const page = frame.contentDocument;
  const style = (element) => frame.contentWindow.getComputedStyle(element);
  const content = page.querySelector(".md-content");
  const texts = [...content.querySelectorAll("h1, h2, p, li, th, td, a, pre code, p code")];
  const shown = texts.filter((one) => one.textContent.trim() && one.offsetParent && !one.matches(".headerlink, .md-button"));
  const worst = shown.map((one) => [contrast(one, style), one.tagName, one.textContent.trim().slice(0, 40)]);
  const code = [...content.querySelectorAll("pre > code")];
  return {
    sideways: page.documentElement.scrollWidth - frame.clientWidth,
    code: code.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 60)),
    contrast: worst.sort((a, b) => a[0] - b[0])[0],
    images: [...content.querySelectorAll("img")].filter((one) => !one.naturalWidth).map((one) => one.src),
  };
}

async function searched(questions) {
  const frame = await opened("/index.html");
  const page = frame.contentDocument;
  page.querySelector(".md-search__button").click();
  const dialog = await until(
    () => [...page.querySelectorAll("*")].find((one) => one.shadowRoot?.querySelector("dialog"))?.shadowRoot,
    "the dialog of the search",
  );
  const status = () => dialog.querySelector("[role=status]").textContent;
  await until(() => !status().startsWith("Loading"), "the index of the search");
  const type = Object.getOwnPropertyDescriptor(frame.contentWindow.HTMLInputElement.prototype, "value").set;
  const answers = {};
  const ask = (text) => {
    type.call(dialog.querySelector("input"), text);
    dialog.querySelector("input").dispatchEvent(new Event("input", { bubbles: true }));
  };
  const first = () => dialog.querySelector("[role=listbox] a")?.getAttribute("href") ?? "";
  for (const question of questions) {
    ask("");
    await until(() => !first(), "no results for no question");
    ask(question);
    await until(() => first() || status().startsWith("No results"), question);
    await pause(200); // results of fewer letters come first
    answers[question] = new URL(first() || "none:", page.baseURI).href.replace(/\?h=[^#]*/, "");
  }
  return answers;
}

async function reported(work) {
  let report;
  try {
    report = await work();
  } catch (error) {
    report = { error: String(error.stack) };
  }
  await fetch("/report", { method: "POST", body: JSON.stringify(report) });
}
