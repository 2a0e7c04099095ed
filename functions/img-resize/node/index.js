"use strict";
// Makes five squares of a JPEG and puts them into an archive.

const { unzipSync, zipSync } = require("fflate");
const { Jimp } = require("jimp");
const { enveloped } = require("./uncia-envelope.js");
const { echo, number, read } = require("./uncia-parameters.cjs");

const DECLARED = { width: number(640, 64, 4_000) };
const SIDES = [196, 144, 96, 72, 48];
// JPEG and the filter change a colour by less.
const TOLERANCE = 12;
const pictures = new Map();

// A JPEG whose red grows to the right, and whose green grows downwards.
async function picture(width) {
  if (!pictures.has(width)) {
    const height = Math.round(width * 0.75);
    const image = new Jimp({ width, height, color: 0x000080ff });
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const at = (y * width + x) * 4;
        image.bitmap.data[at] = Math.round((255 * x) / (width - 1));
        image.bitmap.data[at + 1] = Math.round((255 * y) / (height - 1));
      }
    }
    pictures.set(width, await image.getBuffer("image/jpeg", { quality: 90 }));
  }
  return pictures.get(width);
}

exports.handler = enveloped(async (event) => {
  const values = read(event, DECLARED);
  const jpeg = await picture(values.width);
  const files = {};
  for (const side of SIDES) {
    const image = await Jimp.read(jpeg);
    image.resize({ w: side, h: side });
    files[`${side}.png`] = new Uint8Array(await image.getBuffer("image/png"));
  }
  const archive = zipSync(files);
  let valid = true;
  for (const [name, file] of Object.entries(unzipSync(archive))) {
    const side = Number(name.split(".")[0]);
    // The size as the head of a PNG has it.
    const head = new DataView(file.buffer, file.byteOffset);
    valid &&= head.getUint32(16) === side && head.getUint32(20) === side;
    const { bitmap } = await Jimp.read(Buffer.from(file));
    const middle = ((side / 2) * side + side / 2) * 4;
    valid &&= [0, 1].every((channel) => Math.abs(bitmap.data[middle + channel] - 128) < TOLERANCE);
  }
  valid &&= Object.keys(files).length === SIDES.length;
  return [{ input: jpeg.length, output: archive.length, parameters: echo(values, DECLARED) }, valid];
});
