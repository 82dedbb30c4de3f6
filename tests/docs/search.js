// Searches a built site by the program that its pages search with, in Node.js instead of a browser.
//     node search.js SITE QUERY...    prints for each query a line of JSON: the pages, best first
const fs = require("fs"), vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const workers = `${site}/assets/javascripts/workers/`;
const [program] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const listeners = [];
let answered;
const worker = vm.createContext({
  console, setTimeout, clearTimeout, importScripts() {},
  addEventListener: (_, listener) => listeners.push(listener),
  postMessage: (message) => answered(message),
});
worker.self = worker;
vm.runInContext(fs.readFileSync(workers + program, "utf8"), worker);

const SETUP = 0, QUERY = 2; // types of messages between a page and its worker
function ask(type, data) {
  return new Promise((resolve) => {
    answered = resolve;
    listeners.forEach((listener) => listener({ data: { type, data } }));
  });
}

(async () => {
  const index = JSON.parse(fs.readFileSync(`${site}/search/search_index.json`));
  await ask(SETUP, { ...index, options: { suggest: false } });
  for (const query of queries) {
    const { data } = await ask(QUERY, query);
    console.log(JSON.stringify(data.items.map((page) => page[0].location)));
  }
})();
