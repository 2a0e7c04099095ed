# Encodes a text of the letter a in base64 and decodes it, many times.

require_relative "uncia_envelope"

def handler(event:, context:)
  Uncia.enveloped do
    values = Uncia.read(event, "size" => [1_000_000, 1, 16 << 20], "rounds" => [100, 1, 10_000])
    size, rounds = values.values_at("size", "rounds")
    text = "a" * size
    encoded = decoded = 0
    code = back = ""
    rounds.times do
      code = [text].pack("m0")
      encoded += code.bytesize
    end
    rounds.times do
      back = code.unpack1("m0")
      decoded += back.bytesize
    end
    valid = code.start_with?("YWFh" * (size / 3)) && back == text
    valid &&= encoded == rounds * 4 * ((size + 2) / 3) && decoded == rounds * size
    [{ encoded: encoded, decoded: decoded, parameters: values }, valid]
  end
end
