# Reads points from a text of JSON and takes the means of their coordinates.

require_relative "uncia_envelope"

def handler(event:, context:)
  Uncia.enveloped do
    values = Uncia.read(event, "points" => [1_000, 1, 100_000])
    points = values["points"]
    coordinates = (0...points).map do |i|
      { x: i / 8.0, y: 2 * i + 1, z: i * i, name: "point #{i}", opts: { "1" => [1, true] } }
    end
    text = JSON.generate({ coordinates: coordinates, info: "some info" })
    given = JSON.parse(text)["coordinates"]
    x, y, z = %w[x y z].map { |axis| given.sum { |point| point[axis] } / given.length.to_f }
    # By the sums of the first numbers, odd numbers and squares.
    expected = [(points - 1) / 16.0, points, (points - 1) * (2 * points - 1) / 6.0]
    valid = given.length == points
    valid &&= [x, y, z].zip(expected).all? { |value, right| (value - right).abs <= 1e-9 * right }
    [{ x: x, y: y, z: z, bytes: text.bytesize, parameters: values }, valid]
  end
end
