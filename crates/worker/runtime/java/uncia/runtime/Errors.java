package uncia.runtime;

import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Errors as Lambda reports them. */
final class Errors {
    /** Causes of causes that are described. */
    private static final int DEPTH = 8;

    private Errors() {}

    /** What the function has thrown, without what has been wrapped around it on the way. */
    static Throwable cause(Throwable error) {
        // Not their subclasses, which are the function's own.
        Class<?> type = error.getClass();
        boolean wrapped = type == InvocationTargetException.class || type == ExceptionInInitializerError.class;
        return wrapped && error.getCause() != null ? cause(error.getCause()) : error;
    }

    /** Prints an error, and returns Lambda's object of it. */
    static byte[] report(Throwable error) {
        try {
            error.printStackTrace();
        } catch (Throwable ignored) {
            // The function's own methods are called for that.
        }
        try {
            return Json.write(describe(error, DEPTH));
        } catch (Throwable failed) {
            Map<String, Object> bare = new LinkedHashMap<>();
            bare.put("errorMessage", null);
            bare.put("errorType", error.getClass().getName());
            bare.put("stackTrace", new ArrayList<>());
            return Json.write(bare);
        }
    }

    private static Map<String, Object> describe(Throwable error, int depth) {
        Map<String, Object> description = new LinkedHashMap<>();
        String message;
        try {
            message = error.getMessage();
        } catch (Throwable failed) {
            message = null;
        }
        description.put("errorMessage", message);
        description.put("errorType", error.getClass().getName());
        List<Object> trace = new ArrayList<>();
        for (StackTraceElement element : error.getStackTrace()) {
            String name = element.getClassName();
            boolean own = name.startsWith("uncia.runtime.")
                    || name.startsWith("jdk.internal.reflect.")
                    || name.startsWith("java.lang.reflect.");
            if (!own) {
                trace.add(element.toString());
            }
        }
        description.put("stackTrace", trace);
        Throwable cause = error.getCause();
        if (cause != null && cause != error && depth > 0) {
            description.put("cause", describe(cause, depth - 1));
        }
        return description;
    }
}
