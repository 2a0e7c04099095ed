package uncia.runtime;

import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.GenericArrayType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.lang.reflect.WildcardType;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** JSON as objects of the function's own classes: records, and classes with setters and getters or public fields. */
final class Beans {
    private Beans() {}

    /**
     * Converts a value of {@link Json} to a type; members that the type lacks are left out.
     *
     * @param name of the value, for messages
     * @throws IllegalArgumentException it does not fit
     */
    static Object convert(Object value, Type type, String name) {
        if (type instanceof WildcardType wildcard) {
            return convert(value, wildcard.getUpperBounds()[0], name);
        }
        Type[] of = type instanceof ParameterizedType generic ? generic.getActualTypeArguments() : new Type[0];
        Class<?> raw = raw(type);
        if (value == null && !raw.isPrimitive()) {
            return null;
        }
        if (value instanceof List<?> list) {
            if (raw.isArray()) {
                Type item = type instanceof GenericArrayType array
                        ? array.getGenericComponentType()
                        : raw.getComponentType();
                Object array = Array.newInstance(raw.getComponentType(), list.size());
                for (int i = 0; i < list.size(); i++) {
                    Array.set(array, i, convert(list.get(i), item, name + "[" + i + "]"));
                }
                return array;
            }
            Collection<Object> items = Set.class.isAssignableFrom(raw) ? new LinkedHashSet<>() : new ArrayList<>();
            if (raw.isInstance(items)) {
                for (Object item : list) {
                    items.add(of.length == 1 ? convert(item, of[0], name + "[" + items.size() + "]") : item);
                }
                return items;
            }
        } else if (value instanceof Map<?, ?> map) {
            if (raw.isInstance(map) && of.length == 2) {
                Map<Object, Object> members = new LinkedHashMap<>();
                for (Map.Entry<?, ?> entry : map.entrySet()) {
                    Object key = convert(entry.getKey(), of[0], "a key of " + name);
                    members.put(key, convert(entry.getValue(), of[1], name + "." + entry.getKey()));
                }
                return members;
            }
            if (!raw.isInstance(map)) {
                return bean(map, raw, name);
            }
        }
        Object fitting = raw.isInstance(value) ? value : scalar(value, raw);
        if (fitting == null) {
            throw new IllegalArgumentException(name + " is " + describe(value) + ", and no " + type.getTypeName());
        }
        return fitting;
    }

    private static Class<?> raw(Type type) {
        if (type instanceof Class<?> plain) {
            return plain;
        }
        if (type instanceof ParameterizedType generic) {
            return (Class<?>) generic.getRawType();
        }
        if (type instanceof GenericArrayType array) {
            return raw(array.getGenericComponentType()).arrayType();
        }
        return Object.class;
    }

    private static String describe(Object value) {
        return value == null ? "null" : value instanceof Map ? "an object" : value instanceof List ? "a list" : "" + value;
    }

    /** A number, a boolean or an enumeration's constant; null if it is none of that type. */
    private static Object scalar(Object value, Class<?> type) {
        if (type == boolean.class) {
            return value instanceof Boolean ? value : null;
        }
        if (value instanceof String text && type.isEnum()) {
            for (Object constant : type.getEnumConstants()) {
                if (((Enum<?>) constant).name().equals(text)) {
                    return constant;
                }
            }
        }
        if (value instanceof String text && (type == char.class || type == Character.class)) {
            return text.length() == 1 ? (Object) text.charAt(0) : null;
        }
        if (!(value instanceof Number)) {
            return null;
        }
        try {
            return number(new BigDecimal(value.toString()), type);
        } catch (ArithmeticException error) {
            return null;
        }
    }

    private static Object number(BigDecimal number, Class<?> type) {
        if (type == int.class || type == Integer.class) {
            return number.intValueExact();
        }
        if (type == long.class || type == Long.class) {
            return number.longValueExact();
        }
        if (type == double.class || type == Double.class) {
            return number.doubleValue();
        }
        if (type == float.class || type == Float.class) {
            return number.floatValue();
        }
        if (type == short.class || type == Short.class) {
            return number.shortValueExact();
        }
        if (type == byte.class || type == Byte.class) {
            return number.byteValueExact();
        }
        if (type == BigInteger.class) {
            return number.toBigIntegerExact();
        }
        return type == BigDecimal.class ? number : null;
    }

    private static Object bean(Map<?, ?> members, Class<?> type, String name) {
        try {
            if (type.isRecord()) {
                RecordComponent[] components = type.getRecordComponents();
                Class<?>[] types = new Class<?>[components.length];
                Object[] values = new Object[components.length];
                for (int i = 0; i < components.length; i++) {
                    types[i] = components[i].getType();
                    String key = components[i].getName();
                    Object given = members.get(key);
                    boolean absent = given == null && !members.containsKey(key) && types[i].isPrimitive();
                    values[i] = absent
                            ? Array.get(Array.newInstance(types[i], 1), 0)
                            : convert(given, components[i].getGenericType(), name + "." + key);
                }
                Constructor<?> constructor = type.getDeclaredConstructor(types);
                constructor.setAccessible(true);
                return constructor.newInstance(values);
            }
            if (type.isInterface() || Modifier.isAbstract(type.getModifiers()) || type.getName().startsWith("java.")) {
                throw new IllegalArgumentException(name + " is an object, and no " + type.getName());
            }
            Constructor<?> constructor = type.getDeclaredConstructor();
            constructor.setAccessible(true);
            Object bean = constructor.newInstance();
            for (Map.Entry<?, ?> member : members.entrySet()) {
                set(bean, String.valueOf(member.getKey()), member.getValue(), name);
            }
            return bean;
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(
                    name + " cannot be made a " + type.getName() + ": " + Errors.cause(error), error);
        }
    }

    private static void set(Object bean, String key, Object value, String name) throws ReflectiveOperationException {
        String setter = key.isEmpty() ? "" : "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
        for (Method method : bean.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1 && !method.isBridge()) {
                method.setAccessible(true);
                method.invoke(bean, convert(value, method.getGenericParameterTypes()[0], name + "." + key));
                return;
            }
        }
        for (Field field : bean.getClass().getFields()) {
            if (field.getName().equals(key) && !Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                field.set(bean, convert(value, field.getGenericType(), name + "." + key));
            }
        }
    }

    /** What the getters or components of an object say, and its public fields. */
    static Map<String, Object> properties(Object bean) {
        Map<String, Object> properties = new LinkedHashMap<>();
        try {
            if (bean.getClass().isRecord()) {
                for (RecordComponent component : bean.getClass().getRecordComponents()) {
                    component.getAccessor().setAccessible(true);
                    properties.put(component.getName(), component.getAccessor().invoke(bean));
                }
                return properties;
            }
            if (bean.getClass().getName().startsWith("java.")) {
                throw new IllegalArgumentException(bean.getClass().getName() + " has no form in JSON");
            }
            for (Field field : bean.getClass().getFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    properties.put(field.getName(), field.get(bean));
                }
            }
            for (Method method : bean.getClass().getMethods()) {
                String name = property(method);
                if (name != null) {
                    method.setAccessible(true);
                    properties.put(name, method.invoke(bean));
                }
            }
            return properties;
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(
                    bean.getClass().getName() + " has no form in JSON: " + Errors.cause(error), error);
        }
    }

    /** The property that a method gets; null if it is no getter. */
    private static String property(Method method) {
        String name = method.getName();
        boolean is = name.startsWith("is") && method.getReturnType() == boolean.class;
        int prefix = is ? 2 : name.startsWith("get") ? 3 : 0;
        boolean getter = prefix > 0
                && name.length() > prefix
                && method.getParameterCount() == 0
                && method.getDeclaringClass() != Object.class
                && !Modifier.isStatic(method.getModifiers());
        return getter ? Character.toLowerCase(name.charAt(prefix)) + name.substring(prefix + 1) : null;
    }
}
