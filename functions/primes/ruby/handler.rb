# Counts primes by Eratosthenes' sieve.

require_relative "uncia_envelope"

# Below 10, 100, ...: OEIS A006880.
KNOWN = [4, 25, 168, 1_229, 9_592, 78_498, 664_579, 5_761_455].freeze

def handler(event:, context:)
  Uncia.enveloped do
    values = Uncia.read(event, "exponent" => [7, 1, 8])
    last = 10**values["exponent"]
    composite = Array.new(last, false)
    primes = 0
    (2...last).each do |number|
      next if composite[number]

      primes += 1
      (number * number).step(last - 1, number) { |multiple| composite[multiple] = true }
    end
    [{ primes: primes, parameters: values }, primes == KNOWN[values["exponent"] - 1]]
  end
end
