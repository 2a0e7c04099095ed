# What the catalogue's Ruby functions share: parameters in, the `uncia` key of the answer out.
# Copied beside the handler when a function is packaged. It requires nothing but what the runtime has
# loaded anyway, because every file is paid for again at each cold start.
require "json"

module Uncia
  INSTANCE = Random.urandom(8).unpack1("H*")
  @calls = 0

  # The parameters in an event: the event itself, or the JSON in the body of an HTTP request. Keys are text.
  def self.parameters(event)
    if event.is_a?(Hash) && (event.key?("body") || event.key?("requestContext"))
      body = event["body"]
      body = body.unpack1("m") if body && event["isBase64Encoded"]
      event = body.nil? || body.empty? ? {} : JSON.parse(body)
    end
    return {} if event.nil?
    raise ArgumentError, "the event must be a JSON object of parameters" unless event.is_a?(Hash)

    event
  end

  # Whole numbers of an event by name, each declared as its default, the least and the most.
  def self.read(event, declared)
    given = parameters(event)
    unknown = given.keys - declared.keys
    unless unknown.empty?
      raise ArgumentError, "unknown parameter #{unknown.min.inspect}; allowed: #{declared.keys.join(', ')}"
    end

    declared.to_h do |name, (default, low, high)|
      value = given.fetch(name, default)
      unless value.is_a?(Integer) && value.between?(low, high)
        raise ArgumentError, "#{name}: #{value.inspect} is no whole number between #{low} and #{high}"
      end
      [name, value]
    end
  end

  # The answer of a handler whose block returns its result, a Hash, and whether that was checked and is
  # right.
  def self.enveloped
    cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond)
    start = Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)
    fresh = @calls.zero?
    @calls += 1
    result, valid = yield
    result.merge(
      uncia: {
        fresh: fresh,
        instance: INSTANCE,
        handler_start_ns: start,
        handler_end_ns: Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond),
        cpu_ns: Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :nanosecond) - cpu,
        valid: valid ? true : false
      }
    )
  end
end
