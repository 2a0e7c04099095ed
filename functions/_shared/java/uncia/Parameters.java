package uncia;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;

/** The parameters of an event: the event itself, or the JSON in the body of an HTTP request. */
public final class Parameters {
    private final String text;
    private int position;

    private Parameters(String text) {
        this.text = text;
    }

    /**
     * Reads them: whole numbers are of type Long or Integer, others Double.
     *
     * @throws IllegalArgumentException the event has none, or others than numbers, texts and booleans
     */
    public static Map<String, Object> of(Object event) {
        if (event == null) {
            return Map.of();
        }
        if (!(event instanceof Map<?, ?> map)) {
            throw wrong();
        }
        if (map.containsKey("body") || map.containsKey("requestContext")) {
            String body = (String) map.get("body");
            if (body == null || body.isEmpty()) {
                return Map.of();
            }
            boolean encoded = Boolean.TRUE.equals(map.get("isBase64Encoded"));
            return new Parameters(
                            encoded ? new String(Base64.getDecoder().decode(body), StandardCharsets.UTF_8) : body)
                    .object();
        }
        Map<String, Object> parameters = new LinkedHashMap<>();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            parameters.put((String) entry.getKey(), entry.getValue());
        }
        return parameters;
    }

    private static IllegalArgumentException wrong() {
        return new IllegalArgumentException("the event must be a JSON object of numbers, texts and booleans");
    }

    private Map<String, Object> object() {
        Map<String, Object> members = new LinkedHashMap<>();
        expect('{');
        while (peek() != '}') {
            if (!members.isEmpty()) {
                expect(',');
            }
            String name = string();
            expect(':');
            members.put(name, peek() == '"' ? string() : scalar());
        }
        position++;
        if (peek() != 0) {
            throw wrong();
        }
        return members;
    }

    private char peek() {
        while (position < text.length() && Character.isWhitespace(text.charAt(position))) {
            position++;
        }
        return position < text.length() ? text.charAt(position) : 0;
    }

    private void expect(char letter) {
        if (peek() != letter) {
            throw wrong();
        }
        position++;
    }

    private String string() {
        expect('"');
        StringBuilder result = new StringBuilder();
        while (position < text.length()) {
            char letter = text.charAt(position++);
            if (letter == '"') {
                return result.toString();
            }
            if (letter != '\\') {
                result.append(letter);
                continue;
            }
            char escaped = position < text.length() ? text.charAt(position++) : 0;
            int known = "\"\\/bfnrt".indexOf(escaped);
            if (known >= 0) {
                result.append("\"\\/\b\f\n\r\t".charAt(known));
            } else if (escaped == 'u' && position + 4 <= text.length()) {
                result.append((char) Integer.parseInt(text, position, position + 4, 16));
                position += 4;
            } else {
                throw wrong();
            }
        }
        throw wrong();
    }

    private Object scalar() {
        int start = position;
        while (position < text.length() && ",} \t\r\n".indexOf(text.charAt(position)) < 0) {
            position++;
        }
        String word = text.substring(start, position);
        try {
            return switch (word) {
                case "true" -> Boolean.TRUE;
                case "false" -> Boolean.FALSE;
                case "null" -> null;
                default -> whole(word) ? (Object) Long.valueOf(word) : Double.valueOf(word);
            };
        } catch (NumberFormatException error) {
            throw wrong();
        }
    }

    private static boolean whole(String word) {
        return word.indexOf('.') < 0 && word.indexOf('e') < 0 && word.indexOf('E') < 0;
    }
}
