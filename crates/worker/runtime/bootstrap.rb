# Runs a Ruby handler: the client of the Lambda Runtime API inside an instance.
#
# RubyGems takes longer to load than all else together, so that it is loaded only for packages that
# bring gems. The next event is asked for in the same write that carries the answer to the last.

module UnciaRuntime
  BEGAN = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
  # Where a runtime that is started ahead is told its instance, if this is one.
  WAITS_AT = ENV["_UNCIA_WAITS_AT"]
  PREFIX = "/2018-06-01/runtime/"
  # What ends the process: a function may exit. Every other exception ends an invocation.
  EXITS = [SystemExit, SignalException].freeze
  # A class may be named at any length, and a header has an end.
  MAX_KIND = 256

  # HTTP/1.1 to the one server that an instance has.
  class Connection
    # The environment that the instance was given, before the function changes it.
    attr_writer :given

    def initialize(address)
      @host = address
      connect
    end

    def connect
      host, _, port = @host.rpartition(":")
      # The class alone: the library around it takes three times as long to load.
      require "socket.so"
      @socket = TCPSocket.new(host, port.to_i)
      @socket.setsockopt(Socket::IPPROTO_TCP, Socket::TCP_NODELAY, 1)
    end

    def get(path, headers = "")
      "GET #{PREFIX}#{path} HTTP/1.1\r\nHost: #{@host}\r\n#{headers}\r\n"
    end

    def post(path, body, headers = "")
      head = "POST #{PREFIX}#{path} HTTP/1.1\r\nHost: #{@host}\r\nContent-Type: application/json\r\n" \
             "Content-Length: #{body.bytesize}\r\n#{headers}\r\n"
      head.b << body.b
    end

    def send(data)
      @socket.write(data)
    rescue SystemCallError
      # The worker is gone, or has no more use for this instance.
      exit!(0)
    end

    # Reads that an answer was taken. One that is restored meanwhile finds out with the next event.
    def acknowledged
      receive unless restorable? && gone?
    end

    # The next event. If this process was restored from a checkpoint meanwhile, its connection was another
    # instance's, and is made anew.
    def event
      return receive unless restorable? && gone?

      began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      begin
        connect
      rescue SystemCallError
        exit!(0)
      end
      become
      send(get("invocation/next", "Uncia-Began: #{began}\r\n"))
      receive
    end

    # The status, headers (names in lower case) and body of one response.
    def receive
      status = line.split(" ", 3)[1].to_i
      headers = {}
      until (text = line).empty?
        name, _, value = text.partition(":")
        headers[name.downcase] = value.strip
      end
      length = headers.fetch("content-length", "0").to_i
      body = length.zero? ? +"" : @socket.read(length)
      exit!(0) if body.nil? || body.bytesize < length
      [status, headers, body.force_encoding(Encoding::UTF_8)]
    rescue SystemCallError
      exit!(0)
    end

    private

    def restorable?
      ENV["AWS_LAMBDA_INITIALIZATION_TYPE"] == "snap-start"
    end

    # Waits for what comes; whether nothing will.
    def gone?
      @socket.eof?
    rescue SystemCallError
      true
    end

    # Becomes another instance: with its environment, but for what the function has set itself, and with other
    # random numbers.
    def become
      send(get("restore/next"))
      given = JSON.parse(receive[2])
      (@given.keys | given.keys).each { |name| ENV[name] = given[name] unless given[name] == @given[name] }
      @given = given
      # Of an invocation of the other instance's.
      ENV.delete("_X_AMZN_TRACE_ID")
      Random.srand(Random.new_seed)
      OpenSSL::Random.random_add(Random.urandom(32), 32) if defined?(OpenSSL::Random)
    end

    def line
      (@socket.gets("\r\n") || exit!(0)).chomp("\r\n")
    end
  end

  # What a handler may know of its invocation.
  class Context
    attr_reader :aws_request_id, :invoked_function_arn, :log_group_name, :log_stream_name, :function_name,
                :memory_limit_in_mb, :function_version, :identity, :client_context, :deadline_ms, :clock_diff

    def initialize(headers)
      @aws_request_id = headers["lambda-runtime-aws-request-id"]
      @invoked_function_arn = headers["lambda-runtime-invoked-function-arn"]
      @deadline_ms = headers["lambda-runtime-deadline-ms"].to_i
      @client_context = JSON.parse(headers["lambda-runtime-client-context"]) if headers["lambda-runtime-client-context"]
      @identity = nil
      @clock_diff = 0
      @log_group_name = ENV["AWS_LAMBDA_LOG_GROUP_NAME"]
      @log_stream_name = ENV["AWS_LAMBDA_LOG_STREAM_NAME"]
      @function_name = ENV["AWS_LAMBDA_FUNCTION_NAME"]
      @memory_limit_in_mb = ENV["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
      @function_version = ENV["AWS_LAMBDA_FUNCTION_VERSION"]
    end

    def get_remaining_time_in_millis
      [@deadline_ms - Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond), 0].max
    end
  end

  # The handler cannot be loaded: Lambda's error type, and a message.
  class Unusable < StandardError
    attr_reader :kind

    def initialize(kind, message)
      super(message)
      @kind = kind
    end
  end

  module_function

  # Gives a package that brings gems, or whose layers do, RubyGems, which finds them where Lambda has them.
  def find_gems(task)
    version = "#{RUBY_VERSION[/\d+\.\d+/]}.0"
    folders = ["#{task}/vendor/bundle/ruby/#{version}", "/opt/ruby/gems/#{version}"]
    return unless folders.any? { |it| File.directory?(it) } || File.file?("#{task}/Gemfile")

    ENV["GEM_PATH"] ||= folders.join(":")
    require "rubygems"
  end

  # The handler that `file.method` or `file.Module::Class.method` names.
  def load_handler(name, task)
    file, *rest = name.split(".")
    unless rest.size.between?(1, 2) && !file.empty?
      raise Unusable.new("Runtime.MalformedHandlerName",
                         "Bad handler '#{name}': write file.method or file.Module::Class.method")
    end
    # Those of layers: a runtime that waited was started without the variable.
    $LOAD_PATH.unshift(task, *(ENV["RUBYLIB"] || "").split(":"))
    begin
      require "#{task}/#{file}"
    rescue LoadError => e
      missing = e.path == "#{task}/#{file}" ? "there is no file #{file}.rb" : e.message
      raise Unusable.new("Init<LoadError>", "Unable to load '#{file}': #{missing}")
    end
    method = rest.pop
    receiver = rest.empty? ? TOPLEVEL_BINDING.receiver : Object.const_get(rest[0])
    unless receiver.respond_to?(method, true)
      raise Unusable.new("Runtime.HandlerNotFound", "Handler '#{method}' missing in '#{file}.rb'")
    end
    receiver.method(method)
  end

  # What the function's own methods say of an error, as text in UTF-8; the default if they fail.
  def plain(default = "")
    text = yield.to_s
    is_text = [Encoding::UTF_8, Encoding::BINARY, Encoding::US_ASCII].include?(text.encoding)
    return text.dup.force_encoding(Encoding::UTF_8).scrub("?") if is_text

    text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace, replace: "?")
  rescue *EXITS
    raise
  rescue Exception
    default
  end

  # Prints an error as Lambda does, and returns it as Lambda's object.
  def report(kind, error)
    trace = plain { error.backtrace.to_a.reject { |entry| entry.start_with?(__FILE__) }.join("\n") }.lines(chomp: true)
    message = plain { error.message }
    begin
      $stderr.puts "Error raised from handler: #{kind}: #{message}", *trace
    rescue Exception
      # The function may have closed or replaced its output.
    end
    JSON.generate({ errorMessage: message, errorType: kind, stackTrace: trace })
  end

  # Only what fits a header: a class may be named in any script.
  def kind_header(kind)
    "Lambda-Runtime-Function-Error-Type: #{kind[0, MAX_KIND].tr("^ -~", "?")}\r\n"
  end

  # Runs the handler; returns the request that carries what it said.
  def answer(connection, handler, headers, body)
    path = "invocation/#{headers["lambda-runtime-aws-request-id"]}"
    begin
      result = handler.call(event: JSON.parse(body), context: Context.new(headers))
    rescue *EXITS
      raise
    rescue Exception => e
      kind = plain("Function") { "Function<#{e.class}>" }
      return connection.post("#{path}/error", report(kind, e), kind_header(kind))
    end
    begin
      connection.post("#{path}/response", JSON.generate(result))
    rescue *EXITS
      raise
    rescue Exception => e
      kind = "Runtime.MarshalError"
      connection.post("#{path}/error", report(kind, e), kind_header(kind))
    end
  ensure
    flush
  end

  # What a function that changes its output has not written yet belongs to this invocation.
  def flush
    $stdout.flush
  rescue Exception
    nil
  end

  # Does what is the same for all functions.
  def prepare
    $stdout.sync = true
    # Not the library around it, either.
    require "json"
    Connection.new(ENV["AWS_LAMBDA_RUNTIME_API"])
  end

  # Waits for an instance, and makes the process what it would be had it been started for it.
  # Returns when it was told.
  def become(descriptor)
    gate = IO.for_fd(descriptor, "r+")
    gate.syswrite("\n")
    text = gate.read
    # The worker is gone, or has no use for it.
    exit!(0) if text.empty?
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    gate.close
    ENV.replace(JSON.parse(text).to_h)
    # What it was in lies below the function's code now.
    Dir.chdir(ENV["LAMBDA_TASK_ROOT"])
    began
  end

  def run
    connection = prepare
    began = WAITS_AT ? become(WAITS_AT.to_i) : BEGAN
    connection.given = ENV.to_h
    task = ENV["LAMBDA_TASK_ROOT"] || "/var/task"
    begin
      find_gems(task)
      handler = load_handler(ENV["_HANDLER"] || "", task)
    rescue *EXITS
      raise
    rescue Exception => e
      kind = e.is_a?(Unusable) ? e.kind : plain("Init") { "Init<#{e.class}>" }
      connection.send(connection.post("init/error", report(kind, e), kind_header(kind)))
      connection.receive
      exit!(1)
    end
    connection.send(connection.get("invocation/next", "Uncia-Began: #{began}\r\n"))
    following = connection.get("invocation/next").b
    loop do
      status, headers, body = connection.event
      abort "the Runtime API answered #{status}: #{body}" unless status == 200

      trace = headers["lambda-runtime-trace-id"]
      ENV["_X_AMZN_TRACE_ID"] = trace if trace
      connection.send(answer(connection, handler, headers, body) << following)
      connection.acknowledged
    end
  end
end

UnciaRuntime.run
