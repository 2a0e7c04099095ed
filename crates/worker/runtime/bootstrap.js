// Runs a Node.js handler: the client of the Lambda Runtime API inside an instance.
//
// It speaks HTTP on a bare socket, because loading the module http costs every cold start several
// milliseconds, and asks for the next event in the same write that carries the answer to the last.
'use strict';

const BEGAN = process.hrtime.bigint();
// Where a runtime that is started ahead is told its instance, if this is one.
const WAITS_AT = process.env._UNCIA_WAITS_AT;

const fs = require('fs');
const net = require('net');
const path = require('path');

const PREFIX = '/2018-06-01/runtime/';
// What instances share, if there is anything: see share.js.
const SHARED = '/var/runtime/shared/code.bin';
const EXTENSIONS = ['', '.js', '.mjs', '.cjs'];
// What Lambda's own runtime exits with after an error that nobody caught.
const EXIT_UNCAUGHT = 129;
// What headers and trailers have room for.
const MAX_KIND = 256;
const MAX_TRAILER = 48 * 1024;
// Of a message that a trailer has no room for, in UTF-16's units: each is six bytes of JSON at most.
const MAX_MESSAGE = 4 * 1024;

const environment = process.env;
const address = environment.AWS_LAMBDA_RUNTIME_API;
const root = environment.LAMBDA_TASK_ROOT || '/var/task';

class Unusable extends Error {
  constructor(kind, message, cause) {
    super(message);
    this.name = kind;
    if (cause && cause.stack) this.stack = cause.stack;
  }
}

// The connection: every request that is sent adds what is to be done with its response.
const expected = [];
let received = Buffer.alloc(0);
const socket = net.connect(Number(address.slice(address.lastIndexOf(':') + 1)), address.slice(0, address.lastIndexOf(':')));
socket.setNoDelay(true);
socket.on('data', (data) => {
  received = received.length ? Buffer.concat([received, data]) : data;
  read();
});
// The worker is gone, or has no more use for this instance.
socket.on('error', () => process.exit(0));
socket.on('close', () => process.exit(0));

// The head of a response whose body has not arrived yet, so that it is read only once.
let head = null;

function read() {
  for (;;) {
    if (!head) {
      const end = received.indexOf('\r\n\r\n');
      if (end < 0) return;
      const lines = received.toString('latin1', 0, end).split('\r\n');
      const headers = {};
      for (const line of lines.slice(1)) {
        const colon = line.indexOf(':');
        headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
      }
      const length = Number(headers['content-length'] || 0);
      head = { status: Number(lines[0].split(' ')[1]), headers, body: end + 4, end: end + 4 + length };
    }
    if (received.length < head.end) return;
    const { status, headers } = head;
    const body = received.toString('utf8', head.body, head.end);
    received = received.subarray(head.end);
    head = null;
    const then = expected.shift();
    if (then) then(status, headers, body);
  }
}

function get(where, headers, then) {
  expected.push(then);
  return `GET ${PREFIX}${where} HTTP/1.1\r\nHost: ${address}\r\n${headers}\r\n`;
}

function post(where, body, headers, then) {
  expected.push(then);
  return (
    `POST ${PREFIX}${where} HTTP/1.1\r\nHost: ${address}\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`
  );
}

// A class may be named in any script, and at any length.
function kindHeader(kind) {
  const text = kind.slice(0, MAX_KIND).replace(/[^\x20-\x7e]/g, '?');
  return `Lambda-Runtime-Function-Error-Type: ${text}\r\n`;
}

// Lambda's object for anything that may be thrown.
function describe(error) {
  try {
    if (error instanceof Error || (error && error.stack && error.message !== undefined)) {
      const trace = String(error.stack).split('\n');
      return { errorType: String(error.name), errorMessage: String(error.message), trace };
    }
    return { errorType: typeof error, errorMessage: String(error), trace: [] };
  } catch {
    return { errorType: 'handled', errorMessage: 'callback called with Error argument, but it could not be described', trace: [] };
  }
}

function report(label, description) {
  try {
    console.error('%s %s', label, JSON.stringify(description));
  } catch {
    // The function may have closed or replaced its output.
  }
}

// The package's own word on whether its .js files are ES modules.
function isModule(file) {
  if (file.endsWith('.mjs')) return true;
  if (!file.endsWith('.js')) return false;
  for (let folder = path.dirname(file); ; folder = path.dirname(folder)) {
    try {
      return JSON.parse(fs.readFileSync(path.join(folder, 'package.json'), 'utf8')).type === 'module';
    } catch {
      // None here, or none that can be read: look above.
    }
    if (folder === root || folder === path.dirname(folder)) return false;
  }
}

async function loadModule(name) {
  const base = path.resolve(root, name);
  const file = EXTENSIONS.map((it) => base + it).find((it) => fs.existsSync(it) && fs.statSync(it).isFile());
  try {
    if (file && isModule(file)) return await import(require('url').pathToFileURL(file).href);
    return require(file || base);
  } catch (error) {
    if (error instanceof SyntaxError) {
      throw new Unusable('Runtime.UserCodeSyntaxError', String(error), error);
    }
    if (error && (error.code === 'MODULE_NOT_FOUND' || error.code === 'ERR_MODULE_NOT_FOUND')) {
      throw new Unusable('Runtime.ImportModuleError', String(error), error);
    }
    throw error;
  }
}

async function load(name) {
  const folder = path.dirname(name);
  const match = /^([^.]*)\.(.*)$/.exec(path.basename(name));
  if (!match || name.includes('..')) throw new Unusable('Runtime.MalformedHandlerName', 'Bad handler');
  const module = await loadModule(path.join(folder, match[1]));
  const find = (from) => match[2].split('.').reduce((value, key) => value && value[key], from);
  const handler = find(module) || find(module.default);
  if (handler === undefined) {
    throw new Unusable('Runtime.HandlerNotFound', `${name} is undefined or not exported`);
  }
  if (typeof handler !== 'function') {
    throw new Unusable('Runtime.HandlerNotFound', `${name} is not a function`);
  }
  return handler;
}

// The invocation that runs: {id, settled, answer, waits}, of a streamed one {begun, ended} besides.
let current = null;

// What is sent as the result. It may wait until the event loop has nothing left to do.
function settle(invocation, error, result, failed, context) {
  if (invocation.settled) return;
  invocation.settled = true;
  invocation.answer = () => {
    if (failed) return sendError(invocation, error);
    let body;
    try {
      body = JSON.stringify(result);
    } catch (cause) {
      return sendError(invocation, new Unusable('Runtime.MarshalError', `Unable to stringify response body: ${cause && cause.message}`, cause));
    }
    send(invocation, 'response', body === undefined ? 'null' : body, '');
  };
  // Not before rejections that nobody handles are reported: they make the invocation fail.
  if (!(invocation.waits && context.callbackWaitsForEmptyEventLoop)) setImmediate(invocation.answer);
}

function sendError(invocation, error) {
  const description = describe(error);
  report('Invoke Error', description);
  send(invocation, 'error', JSON.stringify(description), kindHeader(description.errorType));
}

function send(invocation, kind, body, headers) {
  if (current !== invocation) return;
  current = null;
  socket.ref();
  socket.write(post(`invocation/${invocation.id}/${kind}`, body, headers, () => {}) + get('invocation/next', '', event));
}

// Streamed answers, as Lambda's own runtime offers them: a handler that was passed to
// awslambda.streamifyResponse gets a writable stream, and what it writes goes out at once.
const STREAMS = Symbol('streams its answer');
const INTEGRATION = 'application/vnd.awslambda.http-integration-response';

globalThis.awslambda = {
  streamifyResponse(streaming) {
    streaming[STREAMS] = true;
    return streaming;
  },
  HttpResponseStream: {
    // Sends status, headers and cookies ahead of the body.
    from(stream, metadata) {
      stream.setContentType(INTEGRATION);
      stream.write(JSON.stringify(metadata));
      stream.write(Buffer.alloc(8));
      return stream;
    },
  },
};

// What ends a streamed answer, with the error as which it turns out, if there is one.
function streamEnd(description) {
  if (!description) return '0\r\n\r\n';
  let body = Buffer.from(JSON.stringify(description)).toString('base64');
  if (body.length > MAX_TRAILER) {
    const short = { errorType: description.errorType.slice(0, MAX_KIND), errorMessage: description.errorMessage.slice(0, MAX_MESSAGE), trace: [] };
    body = Buffer.from(JSON.stringify(short)).toString('base64');
  }
  return `0\r\n${kindHeader(description.errorType)}Lambda-Runtime-Function-Error-Body: ${body}\r\n\r\n`;
}

function streamOf(invocation) {
  let contentType = 'application/octet-stream';
  const begin = () => {
    invocation.begun = true;
    expected.push(() => {});
    // From now on the answer has to be ended, even if the function does nothing more.
    socket.ref();
    socket.write(
      `POST ${PREFIX}invocation/${invocation.id}/response HTTP/1.1\r\nHost: ${address}\r\n` +
        `Content-Type: ${contentType}\r\nLambda-Runtime-Function-Response-Mode: streaming\r\n` +
        'Trailer: Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body\r\n' +
        'Transfer-Encoding: chunked\r\n\r\n',
    );
  };
  const stream = new (require('stream').Writable)({
    write(chunk, encoding, done) {
      if (current !== invocation || invocation.ended) return done(new Error('the invocation has ended'));
      if (!invocation.begun) begin();
      if (!chunk.length) return done();
      socket.cork();
      socket.write(`${chunk.length.toString(16)}\r\n`);
      socket.write(chunk);
      socket.write('\r\n', () => done());
      socket.uncork();
    },
    final(done) {
      if (current === invocation && !invocation.ended) {
        if (!invocation.begun) begin();
        invocation.ended = true;
        socket.write(streamEnd(null));
        streamed(invocation);
      }
      done();
    },
  });
  // Whoever writes after the end is told by the callback of that write.
  stream.on('error', () => {});
  stream.setContentType = (type) => {
    if (invocation.begun) throw new Error('the content type cannot be set after the first write');
    contentType = String(type).replace(/[^\x20-\x7e]/g, '?');
  };
  return stream;
}

// The next event is asked for when the answer has ended and the handler has returned.
function streamed(invocation) {
  if (!(invocation.ended && invocation.settled) || current !== invocation) return;
  current = null;
  socket.ref();
  socket.write(get('invocation/next', '', event));
}

function streamFailed(invocation, error) {
  invocation.settled = true;
  if (current !== invocation || invocation.ended) {
    report('Invoke Error', describe(error));
    return streamed(invocation);
  }
  if (!invocation.begun) return sendError(invocation, error);
  const description = describe(error);
  report('Invoke Error', description);
  invocation.ended = true;
  socket.write(streamEnd(description));
  streamed(invocation);
}

function parse(text) {
  return text === undefined ? undefined : JSON.parse(text);
}

let handler;

// Gives out what instances share, if this is the one that it is made of.
let share = null;

// What the platform wants of this client, and nothing of the function's.
function obey(id, body) {
  try {
    const answer = JSON.stringify(share(body));
    socket.write(post(`invocation/${id}/response`, answer, '', () => {}) + get('invocation/next', '', event));
  } catch (error) {
    const text = JSON.stringify(describe(error));
    socket.write(post(`invocation/${id}/error`, text, '', () => {}) + get('invocation/next', '', event));
  }
}

function event(status, headers, body) {
  if (status !== 200) {
    console.error('the Runtime API answered %d: %s', status, body);
    process.exit(1);
  }
  const id = headers['lambda-runtime-aws-request-id'];
  if (headers['uncia-order']) return obey(id, body);
  const deadline = Number(headers['lambda-runtime-deadline-ms']);
  const trace = headers['lambda-runtime-trace-id'];
  // As on Lambda. The C library keeps every value that a variable ever had, 180 bytes for each request;
  // an object in place of process.env would be free of that, and could not be cloned or sent to workers.
  if (trace) environment._X_AMZN_TRACE_ID = trace;
  const invocation = { id, settled: false, answer: null, waits: true };
  current = invocation;
  // Now the event loop may run empty, which is how a function without a promise ends.
  socket.unref();

  const finish = (error, result) => settle(invocation, error, result, error !== null && error !== undefined, context);
  const context = {
    callbackWaitsForEmptyEventLoop: true,
    functionName: environment.AWS_LAMBDA_FUNCTION_NAME,
    functionVersion: environment.AWS_LAMBDA_FUNCTION_VERSION,
    memoryLimitInMB: environment.AWS_LAMBDA_FUNCTION_MEMORY_SIZE,
    logGroupName: environment.AWS_LAMBDA_LOG_GROUP_NAME,
    logStreamName: environment.AWS_LAMBDA_LOG_STREAM_NAME,
    awsRequestId: id,
    invokedFunctionArn: headers['lambda-runtime-invoked-function-arn'],
    clientContext: undefined,
    identity: undefined,
    getRemainingTimeInMillis: () => Math.max(deadline - Date.now(), 0),
    done: finish,
    fail: (error) => finish(error === undefined || error === null ? new Error('handled') : error),
    succeed: (result) => finish(null, result),
  };
  try {
    context.clientContext = parse(headers['lambda-runtime-client-context']);
    if (handler[STREAMS]) {
      invocation.waits = false;
      Promise.resolve(handler(JSON.parse(body), streamOf(invocation), context)).then(
        () => {
          invocation.settled = true;
          streamed(invocation);
        },
        (error) => streamFailed(invocation, error),
      );
      return;
    }
    const returned = handler(JSON.parse(body), context, finish);
    if (returned && typeof returned.then === 'function') {
      invocation.waits = false;
      returned.then(
        (result) => settle(invocation, null, result, false, context),
        (error) => settle(invocation, error, null, true, context),
      );
    }
  } catch (error) {
    invocation.waits = false;
    if (handler[STREAMS]) return streamFailed(invocation, error);
    settle(invocation, error, null, true, context);
  }
}

// Nothing is left to wait for.
process.on('beforeExit', () => {
  const invocation = current;
  if (!invocation) return;
  if (invocation.answer) {
    invocation.answer();
  } else if (invocation.waits) {
    invocation.settled = true;
    send(invocation, 'response', 'null', '');
  } else {
    invocation.settled = true;
    sendError(invocation, new Unusable('Runtime.NodeJsExit', "the handler's promise was neither resolved nor rejected, and nothing is left that could do it"));
  }
});

// An error that nobody caught leaves the process in an unknown state: it is reported, and the
// instance ends.
function uncaught(label, description) {
  report(label, description);
  // Between two invocations nobody waits for it.
  if (handler && !current) process.exit(EXIT_UNCAUGHT);
  if (current && current.begun) {
    // It is said in the answer that has begun, or, after its end, nowhere.
    current = null;
    socket.end(streamEnd(description), () => process.exit(EXIT_UNCAUGHT));
    return;
  }
  const where = current ? `invocation/${current.id}/error` : 'init/error';
  current = null;
  socket.ref();
  expected.length = 0;
  socket.write(post(where, JSON.stringify(description), kindHeader(description.errorType), () => process.exit(EXIT_UNCAUGHT)));
}
process.on('uncaughtException', (error) => uncaught('Uncaught Exception', describe(error)));
process.on('unhandledRejection', (reason) => {
  const { errorType, errorMessage, trace } = describe(reason);
  const description = {
    errorType: 'Runtime.UnhandledPromiseRejection',
    errorMessage: reason instanceof Error ? `${errorType}: ${errorMessage}` : errorMessage,
    reason: { errorType, errorMessage, stack: trace },
    promise: {},
    trace,
  };
  uncaught('Unhandled Promise Rejection', description);
});

function begin(began) {
  const records = environment._UNCIA_RECORDS;
  delete environment._UNCIA_RECORDS;
  if (records || fs.existsSync(SHARED)) {
    const file = path.join(__dirname, 'share.js');
    share = require(file)(Boolean(records));
    // A function finds no modules but its own.
    delete require.cache[file];
    module.children.length = 0;
  }
  load(environment._HANDLER || '').then(
    (loaded) => {
      handler = loaded;
      socket.write(get('invocation/next', `Uncia-Began: ${began}\r\n`, event));
    },
    (error) => {
      const description = describe(error);
      report('Init Error', description);
      const body = JSON.stringify(description);
      socket.write(post('init/error', body, kindHeader(description.errorType), () => process.exit(1)));
    },
  );
}

if (WAITS_AT) {
  const file = path.join(__dirname, 'wait.js');
  const wait = require(file);
  // A function finds no modules but its own.
  delete require.cache[file];
  module.children.length = 0;
  socket.once('connect', () => wait(Number(WAITS_AT), begin));
} else {
  begin(BEGAN);
}
