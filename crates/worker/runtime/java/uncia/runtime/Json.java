package uncia.runtime;

import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON as maps, lists, texts, numbers and booleans.
 *
 * <p>A whole number is an {@link Integer}, {@link Long} or {@link BigInteger}, the smallest that holds it, any other
 * a {@link Double}.
 */
final class Json {
    static final byte[] NULL = {'n', 'u', 'l', 'l'};

    /** How deep values may be in each other: the parser calls itself. */
    private static final int MAX_DEPTH = 1000;

    private final String text;
    private int position;
    private int depth;

    private Json(String text) {
        this.text = text;
    }

    /** Reads a text in UTF-8; an {@link IllegalArgumentException} says where it is no JSON. */
    static Object parse(byte[] bytes) {
        Json parser = new Json(new String(bytes, StandardCharsets.UTF_8));
        Object value = parser.value();
        if (parser.peek() != -1) {
            throw parser.wrong();
        }
        return value;
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("this is no JSON at character " + position);
    }

    /** The next character that is no blank; -1 at the end. */
    private int peek() {
        while (position < text.length() && " \t\r\n".indexOf(text.charAt(position)) >= 0) {
            position++;
        }
        return position < text.length() ? text.charAt(position) : -1;
    }

    private void expect(char letter) {
        if (peek() != letter) {
            throw wrong();
        }
        position++;
    }

    private Object value() {
        switch (peek()) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, position)) {
            throw wrong();
        }
        position += word.length();
        return value;
    }

    private void enter() {
        position++;
        if (++depth > MAX_DEPTH) {
            throw new IllegalArgumentException("this JSON is deeper than " + MAX_DEPTH + " values");
        }
    }

    private Map<String, Object> object() {
        enter();
        Map<String, Object> members = new LinkedHashMap<>();
        if (peek() != '}') {
            do {
                if (peek() != '"') {
                    throw wrong();
                }
                String name = string();
                expect(':');
                members.put(name, value());
            } while (follows());
        }
        expect('}');
        depth--;
        return members;
    }

    private List<Object> array() {
        enter();
        List<Object> items = new ArrayList<>();
        if (peek() != ']') {
            do {
                items.add(value());
            } while (follows());
        }
        expect(']');
        depth--;
        return items;
    }

    private boolean follows() {
        boolean comma = peek() == ',';
        if (comma) {
            position++;
        }
        return comma;
    }

    private String string() {
        position++;
        StringBuilder result = new StringBuilder();
        while (position < text.length()) {
            char letter = text.charAt(position++);
            if (letter == '"') {
                return result.toString();
            }
            if (letter < ' ') {
                break;
            }
            result.append(letter == '\\' ? escape() : letter);
        }
        throw wrong();
    }

    private char escape() {
        char letter = position < text.length() ? text.charAt(position++) : ' ';
        int known = "\"\\/bfnrt".indexOf(letter);
        if (known >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(known);
        }
        if (letter != 'u' || position + 4 > text.length()) {
            throw wrong();
        }
        int code = 0;
        for (int i = 0; i < 4; i++) {
            int digit = Character.digit(text.charAt(position++), 16);
            if (digit < 0) {
                throw wrong();
            }
            code = code * 16 + digit;
        }
        return (char) code;
    }

    private Object number() {
        int start = position;
        boolean whole = true;
        while (position < text.length() && "+-.eE0123456789".indexOf(text.charAt(position)) >= 0) {
            whole &= ".eE".indexOf(text.charAt(position)) < 0;
            position++;
        }
        String digits = text.substring(start, position);
        int first = digits.startsWith("-") ? 1 : 0;
        boolean padded = digits.length() > first + 1
                && digits.charAt(first) == '0'
                && Character.isDigit(digits.charAt(first + 1));
        boolean bare = digits.length() <= first || !Character.isDigit(digits.charAt(first)) || digits.endsWith(".");
        if (padded || bare || digits.contains(".e") || digits.contains(".E")) {
            position = start;
            throw wrong();
        }
        try {
            if (!whole) {
                return Double.valueOf(digits);
            }
            if (digits.length() > 18) {
                BigInteger number = new BigInteger(digits);
                return number.bitLength() < 64 ? (Object) number.longValue() : number;
            }
            long number = Long.parseLong(digits);
            return (int) number == number ? (Object) (int) number : number;
        } catch (NumberFormatException error) {
            position = start;
            throw wrong();
        }
    }

    /** Writes a value in UTF-8; an {@link IllegalArgumentException} says why it cannot be written. */
    static byte[] write(Object value) {
        StringBuilder result = new StringBuilder();
        write(value, result, 0);
        return result.toString().getBytes(StandardCharsets.UTF_8);
    }

    private static void write(Object value, StringBuilder to, int depth) {
        if (depth > MAX_DEPTH) {
            throw new IllegalArgumentException("it is deeper than " + MAX_DEPTH + " values, or contains itself");
        }
        if (value == null || value instanceof Boolean) {
            to.append(value);
        } else if (value instanceof CharSequence || value instanceof Character || value instanceof Enum<?>) {
            quote(value instanceof Enum<?> constant ? constant.name() : value.toString(), to);
        } else if (value instanceof Number number) {
            write(number, to);
        } else if (value instanceof Map<?, ?> map) {
            char before = '{';
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                to.append(before);
                quote(String.valueOf(entry.getKey()), to);
                to.append(':');
                write(entry.getValue(), to, depth + 1);
                before = ',';
            }
            to.append(before == '{' ? "{}" : "}");
        } else if (value instanceof Iterable<?> items) {
            char before = '[';
            for (Object item : items) {
                to.append(before);
                write(item, to, depth + 1);
                before = ',';
            }
            to.append(before == '[' ? "[]" : "]");
        } else if (value.getClass().isArray()) {
            List<Object> items = new ArrayList<>();
            for (int i = 0; i < Array.getLength(value); i++) {
                items.add(Array.get(value, i));
            }
            write(items, to, depth);
        } else {
            write(Beans.properties(value), to, depth);
        }
    }

    private static void write(Number number, StringBuilder to) {
        if (number instanceof Double || number instanceof Float) {
            double value = number.doubleValue();
            if (Double.isNaN(value) || Double.isInfinite(value)) {
                throw new IllegalArgumentException(value + " is no number in JSON");
            }
        }
        to.append(number instanceof BigDecimal decimal ? decimal.toPlainString() : number.toString());
    }

    private static void quote(String value, StringBuilder to) {
        to.append('"');
        for (int i = 0; i < value.length(); i++) {
            char letter = value.charAt(i);
            int known = "\"\\\b\f\n\r\t".indexOf(letter);
            boolean alone = Character.isSurrogate(letter) && !isPair(value, i);
            if (known >= 0) {
                to.append('\\').append("\"\\bfnrt".charAt(known));
            } else if (letter < ' ' || alone) {
                to.append("\\u");
                for (int shift = 12; shift >= 0; shift -= 4) {
                    to.append(Character.forDigit(letter >> shift & 15, 16));
                }
            } else {
                to.append(letter);
            }
        }
        to.append('"');
    }

    /** Whether a surrogate is one of two that are a character together. */
    private static boolean isPair(String value, int at) {
        char letter = value.charAt(at);
        return Character.isHighSurrogate(letter)
                ? at + 1 < value.length() && Character.isLowSurrogate(value.charAt(at + 1))
                : at > 0 && Character.isHighSurrogate(value.charAt(at - 1));
    }
}
