package uncia.runtime;

import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.RequestHandler;
import com.amazonaws.services.lambda.runtime.RequestStreamHandler;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;

/**
 * A handler: {@code package.Class::method}, or {@code package.Class}, which implements {@link RequestHandler} or
 * {@link RequestStreamHandler}.
 *
 * <p>A method has one of the forms {@code (event)}, {@code (event, Context)}, {@code (InputStream, OutputStream)} and
 * {@code (InputStream, OutputStream, Context)}, and may be static.
 */
final class Handler {
    private static final String INTERFACE_METHOD = "handleRequest";

    /** Null for a static method. */
    private final Object target;

    private final Method method;
    private final Class<?>[] parameters;

    private Handler(Object target, Method method) {
        this.target = target;
        this.method = method;
        this.parameters = method.getParameterTypes();
    }

    /** Loads and initializes the class that a handler names. */
    static Handler load(String name) throws Throwable {
        int colons = name.indexOf("::");
        String className = colons < 0 ? name : name.substring(0, colons);
        Class<?> type;
        try {
            type = Class.forName(className, true, ClassLoader.getSystemClassLoader());
        } catch (ClassNotFoundException error) {
            // One that it refers to is another matter.
            throw className.equals(error.getMessage())
                    ? new ClassNotFoundException("Class not found: " + className)
                    : error;
        }
        boolean implemented =
                RequestHandler.class.isAssignableFrom(type) || RequestStreamHandler.class.isAssignableFrom(type);
        if (colons < 0 && !implemented) {
            throw new IllegalArgumentException("Class " + className + " implements neither RequestHandler nor"
                    + " RequestStreamHandler: name a method, as " + className + "::method");
        }
        Method method = find(type, colons < 0 ? INTERFACE_METHOD : name.substring(colons + 2));
        method.setAccessible(true);
        if (Modifier.isStatic(method.getModifiers())) {
            return new Handler(null, method);
        }
        var constructor = type.getDeclaredConstructor();
        constructor.setAccessible(true);
        return new Handler(constructor.newInstance(), method);
    }

    /** Of several methods that fit, the one with most parameters, as on Lambda. */
    private static Method find(Class<?> type, String name) throws NoSuchMethodException {
        Method found = null;
        for (Method method : type.getMethods()) {
            if (method.getName().equals(name) && !method.isBridge() && fits(method.getParameterTypes())) {
                if (found == null || method.getParameterCount() > found.getParameterCount()) {
                    found = method;
                }
            }
        }
        if (found == null) {
            throw new NoSuchMethodException("No public method named " + name
                    + " with appropriate method signature found on class " + type.getName()
                    + ": (event), (event, Context), (InputStream, OutputStream), (InputStream, OutputStream, Context)");
        }
        return found;
    }

    private static boolean fits(Class<?>[] parameters) {
        switch (parameters.length) {
            case 1:
                return parameters[0] != OutputStream.class && parameters[0] != Context.class;
            case 2:
                return parameters[1] == Context.class || isStream(parameters);
            case 3:
                return isStream(parameters) && parameters[2] == Context.class;
            default:
                return false;
        }
    }

    private static boolean isStream(Class<?>[] parameters) {
        return parameters[0] == InputStream.class && parameters[1] == OutputStream.class;
    }

    /** Answers an event, both in JSON. */
    byte[] call(byte[] event, Invocation context) throws Throwable {
        if (parameters.length > 1 && isStream(parameters)) {
            ByteArrayInputStream input = new ByteArrayInputStream(event);
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            if (parameters.length == 2) {
                method.invoke(target, input, output);
            } else {
                method.invoke(target, input, output, context);
            }
            return output.size() == 0 ? Json.NULL : output.toByteArray();
        }
        Object value = parameters[0] == InputStream.class ? new ByteArrayInputStream(event) : argument(event);
        Object result = parameters.length == 1 ? method.invoke(target, value) : method.invoke(target, value, context);
        try {
            return Json.write(result);
        } catch (IllegalArgumentException error) {
            throw new Unwritable(error.getMessage());
        }
    }

    private Object argument(byte[] event) {
        Object value = Json.parse(event);
        Class<?> type = parameters[0];
        // The class that fits other types takes long to load, and most handlers get a map.
        boolean plain = !type.isPrimitive()
                && method.getGenericParameterTypes()[0] == type
                && (value == null || type.isInstance(value));
        return plain ? value : Beans.convert(value, method.getGenericParameterTypes()[0], "the event");
    }

    /** What a handler answered cannot be written as JSON. */
    static final class Unwritable extends RuntimeException {
        private static final long serialVersionUID = 1;

        Unwritable(String message) {
            super("Unable to marshal response: " + message);
        }
    }
}
