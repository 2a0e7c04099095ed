"use strict";
// Reads points from a text of JSON and takes the means of their coordinates.

const { enveloped } = require("./uncia-envelope.js");
const { echo, number, read } = require("./uncia-parameters.cjs");

const DECLARED = { points: number(1_000, 1, 100_000) };

exports.handler = enveloped((event) => {
  const values = read(event, DECLARED);
  const { points } = values;
  const coordinates = Array.from({ length: points }, (_, i) => ({
    x: i / 8, y: 2 * i + 1, z: i * i, name: `point ${i}`, opts: { 1: [1, true] },
  }));
  const text = JSON.stringify({ coordinates, info: "some info" });
  const given = JSON.parse(text).coordinates;
  const mean = (axis) => given.reduce((sum, point) => sum + point[axis], 0) / given.length;
  const [x, y, z] = [mean("x"), mean("y"), mean("z")];
  // By the sums of the first numbers, odd numbers and squares.
  const expected = [(points - 1) / 16, points, ((points - 1) * (2 * points - 1)) / 6];
  const valid = given.length === points
    && [x, y, z].every((value, index) => Math.abs(value - expected[index]) <= 1e-9 * expected[index]);
  return [{ x, y, z, bytes: text.length, parameters: echo(values, DECLARED) }, valid];
});
