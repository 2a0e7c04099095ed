// Worker threads, cryptography in the pool of threads, files, name lookups and a server.
const { Worker } = require('worker_threads');
const crypto = require('crypto');
const dns = require('dns');
const fs = require('fs');
const http = require('http');
const os = require('os');

const WORKER = `
const { parentPort } = require('worker_threads');
let sum = 0;
for (let number = 0; number < 1000; number++) sum += number;
parentPort.postMessage(sum);
`;

function filters() {
  const lines = fs.readdirSync('/proc/self/task').map((thread) => {
    const status = fs.readFileSync(`/proc/self/task/${thread}/status`, 'utf8');
    return status.match(/^Seccomp:\s*(\d)/m)[1];
  });
  return [...new Set(lines)];
}

function work() {
  return new Promise((resolve, reject) => {
    new Worker(WORKER, { eval: true }).on('message', resolve).on('error', reject);
  });
}

async function crypt() {
  const key = crypto.scryptSync('password', 'salt', 32);
  const derived = await new Promise((resolve, reject) => {
    crypto.scrypt('password', 'salt', 32, (error, it) => (error ? reject(error) : resolve(it)));
  });
  const nonce = crypto.randomBytes(12);
  const cipher = crypto.createCipheriv('aes-256-gcm', key, nonce);
  const sealed = Buffer.concat([cipher.update('text'), cipher.final()]);
  const opener = crypto.createDecipheriv('aes-256-gcm', derived, nonce);
  opener.setAuthTag(cipher.getAuthTag());
  const pair = crypto.generateKeyPairSync('ed25519');
  const signature = crypto.sign(null, Buffer.from('text'), pair.privateKey);
  const signed = crypto.verify(null, Buffer.from('text'), pair.publicKey, signature);
  return [Buffer.concat([opener.update(sealed), opener.final()]).toString(), signed];
}

async function files() {
  const folder = await fs.promises.mkdtemp(os.tmpdir() + '/');
  await fs.promises.writeFile(folder + '/one', 'text');
  await fs.promises.copyFile(folder + '/one', folder + '/two');
  await fs.promises.rename(folder + '/two', folder + '/three');
  const text = await fs.promises.readFile(folder + '/three', 'utf8');
  const names = (await fs.promises.readdir(folder)).sort();
  await fs.promises.rm(folder, { recursive: true });
  return [text, names];
}

async function fetched() {
  const server = http.createServer((request, response) => response.end('over the network'));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/`);
  const text = await answer.text();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  return text;
}

exports.handler = async () => {
  const sums = await Promise.all([work(), work(), work()]);
  const missing = await dns.promises.lookup('name.invalid').catch((error) => error.code);
  return {
    sums,
    crypto: await crypt(),
    files: await files(),
    fetched: await fetched(),
    missing,
    interfaces: Object.keys(os.networkInterfaces()).length > 0,
    threads: fs.readdirSync('/proc/self/task').length > 1,
    filters: filters(),
  };
};
