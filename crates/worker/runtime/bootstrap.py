"""Runs a Python handler: the client of the Lambda Runtime API inside an instance.

Everything imported here is paid for by every cold start, so this file imports what the interpreter
has loaded or compiled in anyway (the module os alone would be a tenth of a start), speaks HTTP on a
bare socket, and asks for the next event in the same write that carries the answer to the last.
"""

import time

_BEGAN = time.monotonic_ns()

import posix
import sys

# All that is imported here is the interpreter's own.
_OWN_FOLDER = sys.path.pop(0)

import _socket

_PREFIX = "/2018-06-01/runtime/"
_CHUNK = 65536
_TASK = "/var/task"
_LAYERS = "/opt"

# Names where a runtime that is started ahead is told its instance, if this is one.
_WAITS_AT = "_UNCIA_WAITS_AT"

# Names where a copy of a runtime that has run imports is told its instance, if this is one.
_IMPORTS = "_UNCIA_IMPORTS"

# Files of the platform's byte code that could not be used.
_UNUSABLE = []

# What a header has room for: a class may be named at any length.
_MAX_KIND = 256

# A module that there is not.
_MISSING = "no module"

# Of a mode of a file: what it is, and that it is a socket.
_FILE_TYPE = 0o170000
_SOCKET = 0o140000


class _Connection:
    """HTTP/1.1 to the one server that an instance has."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self._host = address.encode()
        self._socket = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        self._socket.connect((host, int(port)))
        self._socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        self._rest = b""

    def get(self, path, headers=b""):
        return b"GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (path.encode(), self._host, headers)

    def post(self, path, body, headers=b""):
        head = (
            b"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n%s\r\n"
        )
        return head % (path.encode(), self._host, len(body), headers) + body

    def send(self, data):
        self._socket.sendall(data)

    def receive(self):
        """Returns status, headers (names in lower case) and body of one response."""
        data = self._rest
        while True:
            end = data.find(b"\r\n\r\n")
            if end >= 0:
                break
            data += self._some()
        lines = data[:end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", "0"))
        body = data[end + 4 :]
        if len(body) < length:
            parts = [body]
            missing = length - len(body)
            while missing > 0:
                part = self._some()
                parts.append(part)
                missing -= len(part)
            body = b"".join(parts)
        self._rest = body[length:]
        return int(lines[0].split(" ", 2)[1]), headers, body[:length]

    def _some(self):
        data = self._socket.recv(_CHUNK)
        if not data:
            # The worker is gone, or has no more use for this instance.
            posix._exit(0)
        return data


def _plain(value):
    """JSON has no Decimal, but databases answer with them."""
    if type(value).__name__ == "Decimal":
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)


def _slow_loads(text):
    import json

    return json.loads(text)


def _slow_dumps(value):
    import json

    return json.dumps(value, default=_plain, separators=(", ", ": "), allow_nan=False)


try:
    # What the module json is made of. Importing it whole takes as long as starting Python, for the
    # sake of regular expressions that are not needed.
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    class _Rules:
        strict = True
        object_hook = None
        object_pairs_hook = None
        parse_float = float
        parse_int = int
        parse_constant = {
            "-Infinity": float("-inf"),
            "Infinity": float("inf"),
            "NaN": float("nan"),
        }.__getitem__
        memo = {}

    _scan = make_scanner(_Rules)

    def _loads(text):
        text = text.strip(" \t\r\n")
        try:
            value, end = _scan(text, 0)
        except Exception:
            # The parts alone cannot even say what is wrong.
            end = -1
        return value if end == len(text) else _slow_loads(text)

    def _dumps(value):
        encode = make_encoder(
            {}, _plain, encode_basestring_ascii, None, ": ", ", ", False, False, False
        )
        return "".join(encode(value, 0))

    _dumps({"a": [1, 1.5, "b", None, True]})
    _loads('{"a": [1, 1.5, "b", null, true]}')
except Exception:
    # Another Python may have made them of other parts.
    _loads = _slow_loads
    _dumps = _slow_dumps


def _variable(name):
    """Returns a variable of the environment, or None. os.environ is of the same dictionary."""
    value = posix.environ.get(name.encode())
    return None if value is None else value.decode(sys.getfilesystemencoding(), "surrogateescape")


class _Fields:
    """An object with the given attributes, those it lacks being None."""

    def __init__(self, names, values):
        for name in names:
            setattr(self, name, values.get(name))

    def __repr__(self):
        return "%s(%r)" % (type(self).__name__.lstrip("_"), vars(self))


class _Client(_Fields):
    pass


class _ClientContext(_Fields):
    pass


class _Identity(_Fields):
    pass


class LambdaContext:
    """What a handler may know of its invocation."""

    def __init__(self, headers):
        self.aws_request_id = headers["lambda-runtime-aws-request-id"]
        self.log_group_name = _variable("AWS_LAMBDA_LOG_GROUP_NAME")
        self.log_stream_name = _variable("AWS_LAMBDA_LOG_STREAM_NAME")
        self.function_name = _variable("AWS_LAMBDA_FUNCTION_NAME")
        self.memory_limit_in_mb = _variable("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
        self.function_version = _variable("AWS_LAMBDA_FUNCTION_VERSION")
        self.invoked_function_arn = headers.get("lambda-runtime-invoked-function-arn")
        self.client_context = _client_context(headers.get("lambda-runtime-client-context"))
        self.identity = _Identity(("cognito_identity_id", "cognito_identity_pool_id"), {})
        self._epoch_deadline_time_in_ms = int(headers.get("lambda-runtime-deadline-ms", "0"))

    def get_remaining_time_in_millis(self):
        return max(self._epoch_deadline_time_in_ms - time.time_ns() // 1000000, 0)

    def log(self, message):
        sys.stdout.write(str(message))

    def __repr__(self):
        return "LambdaContext(%r)" % vars(self)


def _client_context(text):
    if not text:
        return None
    values = _loads(text)
    if not isinstance(values, dict):
        return None
    context = _ClientContext(("custom", "env", "client"), values)
    if isinstance(context.client, dict):
        names = (
            "installation_id",
            "app_title",
            "app_version_name",
            "app_version_code",
            "app_package_name",
        )
        context.client = _Client(names, context.client)
    return context


def _use_byte_code(task, folder):
    """Has modules below `task` loaded from their byte code below `folder`, if they have no other.

    Python's own checks hold: byte code that was not made from the source as it is now is passed
    over, and so is what is no byte code. The package's `__pycache__` is never looked at: Python
    would believe what it says of itself, and the platform compiles the sources, all that it can.
    """
    try:
        posix.stat(folder)
    except OSError:
        # An image's files are as they were made, and nothing was compiled of them.
        return
    import _frozen_importlib_external as external
    import _imp

    class SourceLoader(external.SourceFileLoader):
        # The platform's byte code, once it has been read.
        _given = None

        def get_data(self, path):
            if path == self.path or path != external.cache_from_source(self.path):
                return super().get_data(path)
            if not sys.flags.optimize:
                given = folder + self.path[len(task) :] + "c"
                try:
                    data = super().get_data(given)
                    self._given = given
                    return data
                except OSError:
                    pass
            if path.startswith((_TASK + "/", _LAYERS + "/")):
                raise FileNotFoundError(2, "byte code of a package is not used", path)
            # The function has chosen another place for what it compiles.
            return super().get_data(path)

        def get_code(self, fullname):
            try:
                return super().get_code(fullname)
            except (EOFError, ImportError, TypeError, ValueError):
                if self._given is None:
                    raise
                # It is cut off after its head.
                return self.source_to_code(self.get_data(self.path), self.path)

        def source_to_code(self, *arguments, **options):
            if self._given is not None and self._given not in _UNUSABLE:
                _UNUSABLE.append(self._given)
            return super().source_to_code(*arguments, **options)

    find = external.FileFinder.path_hook(
        (external.ExtensionFileLoader, _imp.extension_suffixes()),
        (SourceLoader, external.SOURCE_SUFFIXES),
        (external.SourcelessFileLoader, external.BYTECODE_SUFFIXES),
    )

    def hook(path):
        if path == task or path.startswith(task + "/"):
            return find(path)
        raise ImportError("only for the function's code", path=path)

    sys.path_hooks.insert(0, hook)


class _Unusable(Exception):
    """The handler cannot be loaded: Lambda's error type, and a message."""

    def __init__(self, kind, message, trace=()):
        super().__init__(message)
        self.kind = kind
        self.trace = list(trace)


def _load(name):
    """Returns the handler that `module.function` names."""
    module_name, dot, function_name = name.rpartition(".")
    if not dot or not module_name:
        raise _Unusable(
            "Runtime.MalformedHandlerName",
            "Bad handler '%s': not enough values to unpack (expected 2, got 1)" % name,
        )
    module_name = module_name.replace("/", ".").lstrip(".")
    if module_name.partition(".")[0] in sys.builtin_module_names:
        raise _Unusable(
            "Runtime.ImportModuleError",
            "Cannot use built-in module %s as a handler module" % module_name,
        )
    try:
        __import__(module_name)
    except ImportError as error:
        raise _Unusable(
            "Runtime.ImportModuleError",
            "Unable to import module '%s': %s" % (module_name, error),
            _trace(error),
        ) from None
    except SyntaxError as error:
        place = '  File "%s" Line %s\n    %s' % (error.filename, error.lineno, error.text)
        raise _Unusable(
            "Runtime.UserCodeSyntaxError",
            "Syntax error in module '%s': %s" % (module_name, error),
            [place],
        ) from None
    try:
        return getattr(sys.modules[module_name], function_name)
    except AttributeError:
        raise _Unusable(
            "Runtime.HandlerNotFound",
            "Handler '%s' missing on module '%s'" % (function_name, module_name),
        ) from None


def _trace(error):
    """The error's stack as text, without this file and the import machinery."""
    files = (
        __file__,
        _main.__code__.co_filename,
        "<frozen importlib._bootstrap>",
        "<frozen importlib._bootstrap_external>",
    )
    try:
        import traceback

        entries = traceback.extract_tb(error.__traceback__)
        return traceback.format_list([entry for entry in entries if entry.filename not in files])
    except Exception:
        # The package has a module of the name of one that this needs.
        return _bare_trace(error.__traceback__, files)


def _bare_trace(step, files):
    """As `_trace`, without the lines of the sources."""
    texts = []
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename not in files:
            texts.append(
                '  File "%s", line %d, in %s\n' % (code.co_filename, step.tb_lineno, code.co_name)
            )
        step = step.tb_next
    return texts


def _report(kind, message, trace, request_id=None):
    """Prints an error as Lambda does, and returns it as Lambda's object."""
    text = "[ERROR] %s: %s" % (kind, message)
    if trace:
        text += "\nTraceback (most recent call last):\n" + "".join(trace)
    try:
        print(text.rstrip("\n"))
    except Exception:
        # The function may have closed or replaced its output.
        pass
    error = {"errorMessage": message, "errorType": kind}
    if request_id is not None:
        error["requestId"] = request_id
    error["stackTrace"] = trace
    return _dumps(error).encode()


def _kind_header(kind):
    # Only what fits a header: a class may be named in any script.
    text = bytes(
        byte if 32 <= byte < 127 else 63 for byte in kind[:_MAX_KIND].encode("ascii", "replace")
    )
    return b"Lambda-Runtime-Function-Error-Type: %s\r\n" % text


def _text(error):
    try:
        return str(error)
    except Exception:
        return ""


class _LogHandler:
    """Makes Lambda's log lines, if the function uses the module logging."""

    request_id = ""

    def install(self):
        logging = sys.modules.get("logging")
        # The package may have another module of that name.
        if not hasattr(logging, "getLogger") or logging.getLogger().handlers:
            return
        outer = self

        class Handler(logging.StreamHandler):
            def format(self, record):
                record.aws_request_id = outer.request_id
                return super().format(record)

        handler = Handler(sys.stdout)
        form = "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s"
        handler.setFormatter(logging.Formatter(form, "%Y-%m-%dT%H:%M:%S"))
        handler.formatter.converter = time.gmtime
        logging.getLogger().addHandler(handler)


def _answer(connection, handler, headers, body):
    """Runs the handler; returns the request that carries what it said."""
    request_id = headers["lambda-runtime-aws-request-id"]
    path = _PREFIX + "invocation/" + request_id
    try:
        event = _loads(body.decode())
        result = handler(event, LambdaContext(headers))
    except Exception as error:
        kind = type(error).__name__
        report = _report(kind, _text(error), _trace(error), request_id)
        return connection.post(path + "/error", report, _kind_header(kind))
    try:
        return connection.post(path + "/response", _dumps(result).encode())
    except Exception as error:
        message = "Unable to marshal response: %s" % _text(error)
        report = _report("Runtime.MarshalError", message, [], request_id)
        return connection.post(path + "/error", report, _kind_header("Runtime.MarshalError"))


def _set_trace_id(value):
    """Sets the variable for os.environ alone.

    putenv() would do so for getenv() as well, and the C library never frees a value: 180 bytes of
    the function's memory for each request.
    """
    value = value.encode(sys.getfilesystemencoding(), "surrogateescape")
    posix.environ[b"_X_AMZN_TRACE_ID"] = value


def _prepare():
    """Does what is the same for all functions."""
    sys.path.insert(0, _TASK)
    try:
        _use_byte_code(_TASK, "/var/runtime/bytecode")
    except Exception:
        # Another Python may have made its loaders of other parts, and compiles at each start.
        pass


def _add_layers():
    """Has modules found in the function's layers, if it has some: after those of its code."""
    folder = _LAYERS + "/python"
    try:
        posix.stat(folder)
    except OSError:
        return
    folders = ["%s/lib/python%d.%d/site-packages" % (folder, *sys.version_info[:2]), folder]
    # PYTHONPATH may name them, and then they come before what is Python's own.
    sys.path[:] = [path for path in sys.path if path not in folders]
    sys.path[1:1] = folders
    for path in folders:
        sys.path_importer_cache.pop(path, None)
    try:
        _use_byte_code(_LAYERS, "/var/runtime/layers-bytecode")
    except Exception:
        # As for the code.
        pass


def _warm():
    """Does once what loading a handler does, before there is one."""
    import os

    try:
        __import__(_MISSING)
    except ImportError:
        pass
    # What it has found in the folder that the code will be in.
    sys.path_importer_cache.pop(_TASK, None)
    _set_environment({str(number): "" for number in range(40)} | {"TZ": os.environ.get("TZ", "")})
    for name in list(os.environ):
        # Reading the time zone again takes longer than all others.
        if name != "TZ":
            del os.environ[name]


def _become(descriptor):
    """Waits for an instance, and makes the process what it would be had it been started for it.

    Returns when it was told.
    """
    posix.write(descriptor, b"\n")
    text = b"".join(iter(lambda: posix.read(descriptor, _CHUNK), b""))
    if not text:
        # The worker is gone, or has no use for it.
        posix._exit(0)
    began = time.monotonic_ns()
    posix.close(descriptor)
    _set_environment(dict(_loads(text.decode())))
    # What it was in lies below the function's code now.
    posix.chdir(_TASK)
    return began


def _set_environment(variables):
    """Gives the process the environment that it would have been started with."""
    import os

    environment = os.environ
    zone = environment.get("TZ")
    environment.clear()
    environment.update(variables)
    if environment.get("TZ") != zone:
        time.tzset()


def _main(connection=None, handler=None):
    connection = connection or _Connection(_variable("AWS_LAMBDA_RUNTIME_API"))
    log = _LogHandler()
    if handler is None:
        _add_layers()
    try:
        handler = handler or _load(_variable("_HANDLER"))
    except Exception as error:
        if isinstance(error, _Unusable):
            kind, trace = error.kind, error.trace
        else:
            kind, trace = type(error).__name__, _trace(error)
        report = _report(kind, _text(error), trace)
        connection.send(connection.post(_PREFIX + "init/error", report, _kind_header(kind)))
        connection.receive()
        sys.exit(1)
    log.install()

    next_path = _PREFIX + "invocation/next"
    unusable = b"Uncia-Byte-Code: %d\r\n" % len(_UNUSABLE) if _UNUSABLE else b""
    connection.send(connection.get(next_path, b"Uncia-Began: %d\r\n" % _BEGAN + unusable))
    next_event = connection.get(next_path)
    while True:
        status, headers, body = connection.receive()
        if status != 200:
            sys.exit("the Runtime API answered %d: %s" % (status, body.decode("utf-8", "replace")))
        log.request_id = headers["lambda-runtime-aws-request-id"]
        if "lambda-runtime-trace-id" in headers:
            _set_trace_id(headers["lambda-runtime-trace-id"])
        answer = _answer(connection, handler, headers, body)
        connection.send(answer + next_event)
        connection.receive()


if posix.fstat(0).st_mode & _FILE_TYPE == _SOCKET:
    # An instance has /dev/null there. This process makes instances, and goes on as each of them.
    sys.path.insert(0, _OWN_FOLDER)
    import zygote

    del sys.path[0]
    _prepare()
    zygote.serve()
    del zygote
    _BEGAN = time.monotonic_ns()
    _main()
elif _variable(_IMPORTS) is not None:
    # What a keeper has stand still. It goes on as each instance.
    sys.path.insert(0, _OWN_FOLDER)
    import function_zygote

    del sys.path[0]
    _prepare()
    _handler = function_zygote.import_once(int(_variable(_IMPORTS)))
    del function_zygote
    _BEGAN = time.monotonic_ns()
    _main(handler=_handler)
else:
    _prepare()
    if _variable(_WAITS_AT) is not None:
        _connection = _Connection(_variable("AWS_LAMBDA_RUNTIME_API"))
        _gate = int(_variable(_WAITS_AT))
        _warm()
        _BEGAN = _become(_gate)
        _main(_connection)
    else:
        _main()
