/* The status page's script without a browser: node status_page.js PAGE < [/status, /traces]. Prints what it drew: tiles, workers, and
   the timeline's ticks and rows. */
"use strict";
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8"), answers = JSON.parse(fs.readFileSync(0, "utf8"));
const script = page.match(/<script nonce="@NONCE@">([^]*)<\/script>/)[1];

class Element {
  constructor(tag, space) { Object.assign(this, {tag, namespaceURI: space, children: [], attributes: {}, style: {}, text: "", hidden: false, clientWidth: 1000, dataset: {}}); }
  set textContent(text) { this.text = text; this.children = []; }
  get textContent() { return this.text + this.children.map(child => child.textContent).join(""); }
  get classList() { return {toggle() {}}; }
  get tBodies() { return [this.part("tbody")]; }
  part(tag) { return this.children.find(child => child.tag === tag) || this.appendChild(new Element(tag, this.namespaceURI)); }
  querySelector(tag) { return this.part(tag); }
  appendChild(child) { this.children.push(child); return child; }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  addEventListener() {}
  focus() {}
  getComputedTextLength() { return 6 * this.text.length; }
  all(tag) { return this.children.flatMap(child => [...(child.tag === tag ? [child] : []), ...child.all(tag)]); }
}
const elements = {};
globalThis.document = {
  getElementById: id => elements[id] = elements[id] || new Element(id, ""),
  createElementNS: (space, tag) => new Element(tag, space),
  activeElement: null,
};
globalThis.addEventListener = () => {};
globalThis.setTimeout = () => {
  const gantt = elements.gantt, cells = row => row.children.map(cell => cell.textContent);
  console.log(JSON.stringify({
    state: elements.state.textContent,
    tiles: elements.tiles.children.map(tile => tile.textContent),
    workers: elements.workers.part("tbody").children.map(cells),
    lanes: elements.workers.part("tbody").children.map(row => row.children.slice(-2)[0]).map(lane => [lane.textContent, lane.title || ""]),
    classes: elements.slo.part("tbody").children.map(cells),
    ticks: gantt.children.filter(child => child.tag === "text").map(child => child.textContent),
    rows: gantt.children.filter(child => child.tag === "g").map(row => ({
      id: row.attributes["data-id"], trace: row.part("a").attributes.href, words: row.all("text").map(text => text.textContent),
      bars: row.children.filter(child => child.tag === "rect" && child.attributes.class !== "hit")
        .map(({attributes}) => [attributes.class, Number(attributes.x), Number(attributes.width)]),
    })),
  }));
};
globalThis.fetch = async path => ({ok: true, json: async () => answers[path]});
new Function(script)();
