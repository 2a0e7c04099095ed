// What V8 has made of the sources of a package: kept of one instance, for those that start later.
//
// Only of CommonJS modules, which pass through here; of an ES module Node.js gives nothing out. V8 looks at
// version, options and length of what it is given; that the sources are the same follows from the package, of which
// alone the file is.
'use strict';

const fs = require('fs');
const path = require('path');
const vm = require('vm');
const Module = require('module');

const FILE = '/var/runtime/shared/code.bin';
const PLACES = ['/var/task/', '/opt/'];
const IMPORTS = /\bimport\s*\(/;
// What an answer has room for.
const CHUNK = 3 << 20;

// The names of files, and what was kept of each.
function read(file) {
  const bytes = fs.readFileSync(file);
  const end = 4 + bytes.readUInt32LE(0);
  const index = JSON.parse(bytes.toString('utf8', 4, end));
  return new Map(index.map(([name, from, length]) => [name, bytes.subarray(end + from, end + from + length)]));
}

function write(scripts) {
  const index = [];
  const pieces = [];
  let length = 0;
  for (const [name, script] of scripts) {
    const data = script.createCachedData();
    index.push([name, length, data.length]);
    pieces.push(data);
    length += data.length;
  }
  const head = Buffer.from(JSON.stringify(index));
  const size = Buffer.alloc(4);
  size.writeUInt32LE(head.length);
  return Buffer.concat([size, head, ...pieces]);
}

// As a module's own `require`, which Node.js makes where nobody else can.
function requireOf(module) {
  const require = (name) => module.require(name);
  require.resolve = (request, options) => Module._resolveFilename(request, module, false, options);
  require.resolve.paths = (request) => Module._resolveLookupPaths(request, module);
  require.main = process.mainModule;
  require.extensions = Module._extensions;
  require.cache = Module._cache;
  return require;
}

// Has modules loaded from what was kept, or with `records` notes them; returns what gives it out, piece by piece.
module.exports = (records) => {
  const kept = records ? new Map() : read(FILE);
  const scripts = new Map();
  const compile = Module.prototype._compile;
  const load = Module._extensions['.js'];
  Module.prototype._compile = function (content, filename, ...rest) {
    const cachedData = kept.get(filename);
    // Whoever has put another loader in place may have changed the source.
    const ours = (records ? PLACES.some((place) => filename.startsWith(place)) : cachedData) && Module._extensions['.js'] === load;
    // What V8 has kept cannot import modules: it has lost who is to load them.
    if (!ours || filename.endsWith('.mjs') || IMPORTS.test(content)) return compile.call(this, content, filename, ...rest);
    let script;
    try {
      script = new vm.Script(Module.wrap(content.replace(/^#!.*/, '')), {
        filename,
        cachedData,
        columnOffset: -Module.wrapper[0].length,
      });
    } catch {
      // Node.js says better what is wrong with it, or takes it for an ES module.
      return compile.call(this, content, filename, ...rest);
    }
    if (records) scripts.set(filename, script);
    const run = script.runInThisContext({ displayErrors: true });
    return run.call(this.exports, this.exports, requireOf(this), this, filename, path.dirname(filename));
  };
  let bytes = null;
  return (body) => {
    if (!scripts.size) throw new Error('it has loaded no CommonJS module of its package');
    if (!bytes) bytes = write(scripts);
    const { offset } = JSON.parse(body);
    return offset < bytes.length ? bytes.toString('base64', offset, offset + CHUNK) : null;
  };
};
