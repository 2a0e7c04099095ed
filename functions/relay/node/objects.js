"use strict";
// The store: objects by S3's API, with AWS's SDK, which is loaded when the first is asked for.

const PART_BYTES = 16 << 20; // of a multipart upload; as many parts as PARTS are in memory at a time
const PARTS = 4;
const MOST_PARTS = 10_000;

let sdk;

// The client of AWS's SDK, made once.
function load() {
  const set = (name) => process.env[name] || undefined;
  if (!set("UNCIA_STORE_BUCKET")) {
    throw new Error("this function reaches no store: name it in its reach ([store])");
  }
  const { DeleteObjectCommand, GetObjectCommand, S3Client } = require("@aws-sdk/client-s3");
  const { Upload } = require("@aws-sdk/lib-storage");
  const client = new S3Client({
    region: set("AWS_REGION"),
    endpoint: set("AWS_ENDPOINT_URL_S3"),
    credentials: {
      accessKeyId: set("AWS_ACCESS_KEY_ID"),
      secretAccessKey: set("AWS_SECRET_ACCESS_KEY"),
      sessionToken: set("AWS_SESSION_TOKEN"),
    },
    forcePathStyle: true,
    // The function checks a digest of its own.
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  });
  // Else the SDK would digest each part once more.
  const unsigned = (next) => (given) => {
    given.request.headers["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD";
    return next(given);
  };
  client.middlewareStack.add(unsigned, { step: "build", name: "unsignedPayload" });
  return {
    client,
    bucket: set("UNCIA_STORE_BUCKET"),
    prefix: process.env.UNCIA_STORE_PREFIX ?? "",
    DeleteObjectCommand,
    GetObjectCommand,
    Upload,
  };
}

function store() {
  sdk ??= load();
  return sdk;
}

// Stores what a buffer or a stream has, in parts if it is large.
async function put(key, body, size) {
  const { client, bucket, Upload } = store();
  const upload = new Upload({
    client,
    params: { Bucket: bucket, Key: key, Body: body },
    partSize: Math.max(PART_BYTES, Math.ceil(size / MOST_PARTS)),
    queueSize: PARTS,
  });
  await told("take", key, upload.done());
}

// A stream of what an object has.
async function get(key) {
  const { client, bucket, GetObjectCommand } = store();
  const command = new GetObjectCommand({ Bucket: bucket, Key: key });
  return (await told("give", key, client.send(command))).Body;
}

async function remove(key) {
  const { client, bucket, DeleteObjectCommand } = store();
  await told("remove", key, client.send(new DeleteObjectCommand({ Bucket: bucket, Key: key })));
}

async function told(what, key, asked) {
  try {
    return await asked;
  } catch (error) {
    throw new Error(`the store does not ${what} the object ${key}: ${error.name}: ${error.message}`);
  }
}

module.exports = { get, put, remove, store };
