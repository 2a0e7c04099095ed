package uncia.runtime;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Runs a Java handler: the client of the Lambda Runtime API inside an instance.
 *
 * <p>Each class that is loaded before the first event is paid for by every cold start. So there are few, without
 * lambdas, regular expressions and formats; and the next event is asked for in the same write that carries the
 * answer to the last.
 */
final class Main {
    /** By the monotonic clock, in ns. */
    private static final long BEGAN = System.nanoTime();

    /** What Lambda's own client tells tracing libraries by, since a process cannot change its environment. */
    private static final String TRACE_PROPERTY = "com.amazonaws.xray.traceHeader";

    private static final String SAMPLE = "{\"a\": [1, 2.5, \"b\", true, null]}";

    private Main() {}

    public static void main(String[] arguments) {
        try {
            String appended = System.getProperty("uncia.appended");
            if (appended != null) {
                Share.append(appended);
            }
            Api api = new Api(System.getenv("AWS_LAMBDA_RUNTIME_API"));
            serve(api, load(api, System.getenv("_HANDLER")));
        } catch (Api.Gone gone) {
            // The worker has no more use for this instance. What the function has started does not keep it.
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // The client itself has failed, such as for lack of memory. Else threads of the function would keep
            // the process, and whoever waits for an answer.
            try {
                error.printStackTrace();
            } finally {
                Runtime.getRuntime().halt(1);
            }
        }
    }

    private static Handler load(Api api, String name) throws Api.Gone {
        try {
            Handler handler = Handler.load(name == null ? "" : name);
            // What the first event would load.
            Json.write(Json.parse(SAMPLE.getBytes(StandardCharsets.UTF_8)));
            return handler;
        } catch (Throwable thrown) {
            Throwable error = Errors.cause(thrown);
            api.send(api.post("init/error", Errors.report(error), error.getClass().getName()));
            api.receive();
            Runtime.getRuntime().halt(1);
            throw new AssertionError();
        }
    }

    /** Serves one event after another until there is nobody who sends them. */
    static void serve(Api api, Handler handler) throws Api.Gone {
        byte[] next = api.get("invocation/next", "");
        api.send(api.get("invocation/next", "Uncia-Began: " + BEGAN + "\r\n"));
        while (true) {
            Api.Response event = next(api);
            if (event.status != 200) {
                System.err.println(
                        "the Runtime API answered " + event.status + ": " + new String(event.body, StandardCharsets.UTF_8));
                Runtime.getRuntime().halt(1);
            }
            byte[] answer = answer(api, handler, event);
            byte[] both = new byte[answer.length + next.length];
            System.arraycopy(answer, 0, both, 0, answer.length);
            System.arraycopy(next, 0, both, answer.length, next.length);
            api.send(both);
            acknowledged(api);
        }
    }

    private static boolean isRestorable() {
        return "snap-start".equals(System.getenv("AWS_LAMBDA_INITIALIZATION_TYPE"));
    }

    /** Reads that an answer was taken. One that is restored meanwhile finds out with the next event. */
    private static void acknowledged(Api api) throws Api.Gone {
        try {
            api.receive();
        } catch (Api.Gone gone) {
            if (!isRestorable()) {
                throw gone;
            }
        }
    }

    /** The next event. If this process was restored meanwhile, its connection was another instance's, and is made anew. */
    private static Api.Response next(Api api) throws Api.Gone {
        try {
            return api.receive();
        } catch (Api.Gone gone) {
            if (!isRestorable()) {
                throw gone;
            }
            long began = System.nanoTime();
            api.connect();
            Restored.begin(api);
            api.send(api.get("invocation/next", "Uncia-Began: " + began + "\r\n"));
            return api.receive();
        }
    }

    /** Runs the handler; returns the request that carries what it said. */
    private static byte[] answer(Api api, Handler handler, Api.Response event) throws Api.Gone {
        Map<String, String> headers = event.headers;
        String path = "invocation/" + headers.get("lambda-runtime-aws-request-id");
        String trace = headers.get("lambda-runtime-trace-id");
        if (trace != null) {
            System.setProperty(TRACE_PROPERTY, trace);
        }
        if (headers.get("uncia-order") != null) {
            return obey(api, path, headers.get("uncia-order"), event.body);
        }
        try {
            return api.post(path + "/response", handler.call(event.body, new Invocation(headers)), null);
        } catch (Throwable thrown) {
            Throwable error = Errors.cause(thrown);
            byte[] request = api.post(path + "/error", Errors.report(error), error.getClass().getName());
            if (error instanceof VirtualMachineError && !(error instanceof StackOverflowError)) {
                // Nobody knows what else has failed for lack of memory.
                api.send(request);
                api.receive();
                Runtime.getRuntime().halt(1);
            }
            return request;
        } finally {
            flush(System.out);
            flush(System.err);
        }
    }

    /** Does what the platform wants of this client, and nothing of the function's. */
    private static byte[] obey(Api api, String path, String order, byte[] event) {
        try {
            return api.post(path + "/response", Share.answer(order, event), null);
        } catch (Throwable error) {
            return api.post(path + "/error", Errors.report(error), error.getClass().getName());
        }
    }

    private static void flush(PrintStream stream) {
        try {
            stream.flush();
        } catch (RuntimeException ignored) {
            // The function has put another in its place, or none.
        }
    }
}
