package uncia;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonParser;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * Documents: JSON with a revision, in the service {@code documents}, which the function must reach.
 *
 * <p>Compiled into functions that name this class and require {@code redis.clients:jedis}. Revisions are
 * numbers that only grow, over all documents: the position of a change is the revision that it gave.
 * An object serves one thread at a time.
 */
public final class Documents implements AutoCloseable {
    /** The revision of a document that is not there. */
    public static final long ABSENT = 0;

    private static final int TIMEOUT_MS = 30_000;
    private static final int PAGE = 1000;
    // After which a server may have closed the connection.
    private static final long IDLE_NANOS = 1_000_000_000;

    private static final Pattern TRACE =
            Pattern.compile("Root=1-([0-9a-f]{8})-([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})");

    private final URI address;
    private final DefaultJedisClientConfig config;
    private final String script;
    private final String[] keys;
    private Jedis client;
    private long used;

    /** A document's value and revision; null and {@link #ABSENT} where there is none. */
    public record Document(JsonElement value, long revision) {}

    /** A document with its key. */
    public record Entry(String key, JsonElement value, long revision) {}

    /** A change: its kind is put or delete, its value null for the latter. */
    public record Change(long position, String key, String kind, JsonElement value, String writer) {}

    /** A step of a transaction; a revision of null may be any. */
    public record Step(String kind, String key, Long revision, JsonElement value) {
        public Step {
            if (!List.of("put", "delete", "check").contains(kind) || kind.equals("put") != (value != null)) {
                throw new IllegalArgumentException(kind + " with the value " + value + " is no step of a transaction");
            }
            if (key.isEmpty()) {
                throw new IllegalArgumentException("a document's key must not be empty");
            }
            checkFinite(value);
        }

        /** Writes a document. */
        public static Step put(String key, Long revision, JsonElement value) {
            return new Step("put", key, revision, value == null ? JsonNull.INSTANCE : value);
        }

        /** Removes a document. */
        public static Step delete(String key, Long revision) {
            return new Step("delete", key, revision, null);
        }

        /** Changes nothing, and is in the way of the others where the document has another revision. */
        public static Step check(String key, Long revision) {
            return new Step("check", key, revision, null);
        }
    }

    /** The service cannot do what it was asked for; the message says why. */
    public static class DocumentsException extends RuntimeException {
        DocumentsException(String message, Throwable cause) {
            super(message, cause);
        }
    }

    /** A document has another revision than was asked for, so nothing was done. */
    public static final class ConflictException extends DocumentsException {
        /** The key of the document. */
        public final String key;

        /** The revision that it has. */
        public final long revision;

        ConflictException(String key, long revision) {
            super("'" + key + "' has revision " + revision + " by now: read it again", null);
            this.key = key;
            this.revision = revision;
        }
    }

    /**
     * Connects at the first request.
     *
     * @throws DocumentsException there is no such service
     */
    public Documents() {
        String prefix = set("UNCIA_DOCUMENTS_PREFIX");
        script = set("UNCIA_DOCUMENTS_SCRIPT");
        keys = new String[] {prefix + "documents", prefix + "order", prefix + "changes", prefix + "last"};
        address = URI.create(set("REDIS_URL"));
        config = DefaultJedisClientConfig.builder()
                .user(given("UNCIA_DOCUMENTS_USER"))
                .password(given("UNCIA_DOCUMENTS_PASSWORD"))
                .database(Integer.parseInt(Optional.ofNullable(given("UNCIA_DOCUMENTS_DATABASE")).orElse("0")))
                .timeoutMillis(TIMEOUT_MS)
                .build();
    }

    /** A document and its revision. */
    public Document get(String key) {
        return parsed((byte[]) ask(Command.HGET, keys[0], key));
    }

    /** Writes a document, if it still has the revision where one is given; its new revision. */
    public long put(String key, JsonElement value, Long revision, String writer) {
        return transact(List.of(Step.put(key, revision, value)), writer).get(0);
    }

    /** Removes a document likewise; the position of the change, or {@link #ABSENT} if there was none. */
    public long delete(String key, Long revision, String writer) {
        return transact(List.of(Step.delete(key, revision)), writer).get(0);
    }

    /**
     * Carries out all steps at once, or none.
     *
     * @param writer is noted in the changes, by which the platform tells whose they are; null: the id of the
     *     invocation
     * @return the revision of each
     * @throws ConflictException a document has another revision
     */
    public List<Long> transact(List<Step> steps, String writer) {
        List<String> words = new ArrayList<>(List.of("transact", writer == null ? requestId() : writer));
        for (Step step : steps) {
            words.add(step.kind());
            words.add(step.key());
            words.add(step.revision() == null ? "" : step.revision().toString());
            words.add(step.value() == null ? "" : step.value().toString());
        }
        List<String> result = evaluate(words);
        if (result.get(0).equals("conflict")) {
            throw new ConflictException(result.get(1), Long.parseLong(result.get(2)));
        }
        return result.subList(1, result.size()).stream().map(Long::valueOf).toList();
    }

    /** The id of the request that is being served, the root of its trace; empty where none is known. */
    private static String requestId() {
        String trace = System.getProperty("com.amazonaws.xray.traceHeader", "");
        Matcher root = TRACE.matcher(trace);
        if (!root.find()) {
            return "";
        }
        return String.join("-", root.group(1), root.group(2), root.group(3), root.group(4), root.group(5));
    }

    /** The documents whose keys begin so, by the keys' bytes. What is written meanwhile may be missed. */
    public List<Entry> list(String prefix) {
        List<Entry> entries = new ArrayList<>();
        String after = "";
        while (true) {
            List<String> words = evaluate(List.of("list", prefix, after, String.valueOf(PAGE)));
            if (words.isEmpty()) {
                return entries;
            }
            for (int index = 0; index < words.size(); index += 2) {
                Document document = parsed(words.get(index + 1).getBytes(StandardCharsets.UTF_8));
                entries.add(new Entry(words.get(index), document.value(), document.revision()));
            }
            after = words.get(words.size() - 2);
        }
    }

    /**
     * The next changes behind a position, oldest first.
     *
     * @param limit at most so many
     * @param waitMillis wait so long, less than 30 s, for one; 0: do not
     */
    public List<Change> changes(long after, int limit, int waitMillis) {
        List<String> words = new ArrayList<>(List.of("COUNT", String.valueOf(limit)));
        if (waitMillis > 0) {
            words.addAll(List.of("BLOCK", String.valueOf(waitMillis)));
        }
        words.addAll(List.of("STREAMS", keys[2], after + "-0"));
        Object streams = ask(Command.XREAD, words.toArray(String[]::new));
        List<Change> changes = new ArrayList<>();
        if (streams == null) {
            return changes;
        }
        for (Object stream : (List<?>) streams) {
            for (Object entry : (List<?>) ((List<?>) stream).get(1)) {
                changes.add(change((List<?>) entry));
            }
        }
        return changes;
    }

    /** Ends the connection; the next request makes another. */
    @Override
    public void close() {
        if (client != null) {
            client.close();
            client = null;
        }
    }

    private List<String> evaluate(List<String> words) {
        List<String> all = new ArrayList<>(List.of(script, String.valueOf(keys.length)));
        all.addAll(List.of(keys));
        all.addAll(words);
        List<?> result = (List<?>) ask(Command.EVALSHA, all.toArray(String[]::new));
        return result.stream().map(Documents::text).toList();
    }

    /** Sends a command, once: a transaction whose answer was lost may have been carried out. */
    private Object ask(ProtocolCommand command, String... words) {
        try {
            if (client != null && System.nanoTime() - used > IDLE_NANOS && isGone()) {
                close();
            }
            if (client == null) {
                client = new Jedis(new HostAndPort(address.getHost(), address.getPort()), config);
            }
            Object result = client.sendCommand(command, words);
            used = System.nanoTime();
            return result;
        } catch (JedisConnectionException error) {
            close();
            throw new DocumentsException(
                    "the documents' server cannot be reached, or went away before it answered: "
                            + error.getMessage(),
                    error);
        } catch (JedisDataException error) {
            String message = String.valueOf(error.getMessage());
            if (message.startsWith("NOSCRIPT")) {
                throw new DocumentsException(
                        "the documents' server has forgotten its script: it was started again or emptied", error);
            }
            if (message.startsWith("OOM")) {
                throw new DocumentsException(
                        "the documents' server is full, and nothing was done: its memory must be raised", error);
            }
            throw new DocumentsException("the documents' server refuses: " + message, error);
        }
    }

    /** Whether the server does not answer any more: then nothing was sent yet that could be done twice. */
    private boolean isGone() {
        try {
            client.ping();
            return false;
        } catch (JedisConnectionException error) {
            return true;
        }
    }

    /** Refuses numbers that JSON does not have. */
    private static void checkFinite(JsonElement value) {
        if (value == null) {
            return;
        }
        if (value.isJsonArray()) {
            value.getAsJsonArray().forEach(Documents::checkFinite);
        } else if (value.isJsonObject()) {
            value.getAsJsonObject().asMap().values().forEach(Documents::checkFinite);
        } else if (value.isJsonPrimitive() && value.getAsJsonPrimitive().isNumber()) {
            double number = value.getAsDouble();
            Number kind = value.getAsJsonPrimitive().getAsNumber();
            if ((kind instanceof Double || kind instanceof Float) && !Double.isFinite(number)) {
                throw new IllegalArgumentException(number + " is no number of JSON's");
            }
        }
    }

    private static String set(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new DocumentsException(name + " is not set: name documents in the function's reach", null);
        }
        return value;
    }

    private static String given(String name) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? null : value;
    }

    private static String text(Object word) {
        return word instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : String.valueOf(word);
    }

    /** Value and revision of what the server holds: the revision, a blank, and JSON. */
    private static Document parsed(byte[] held) {
        if (held == null) {
            return new Document(null, ABSENT);
        }
        String text = text(held);
        int blank = text.indexOf(' ');
        return new Document(
                JsonParser.parseString(text.substring(blank + 1)), Long.parseLong(text.substring(0, blank)));
    }

    /** A change as the stream has it: its position, and a flat list of fields. */
    private static Change change(List<?> entry) {
        String position = text(entry.get(0));
        List<?> words = (List<?>) entry.get(1);
        Map<String, String> fields = new HashMap<>();
        for (int index = 0; index < words.size(); index += 2) {
            fields.put(text(words.get(index)), text(words.get(index + 1)));
        }
        String json = fields.get("json");
        return new Change(
                Long.parseLong(position.substring(0, position.indexOf('-'))),
                fields.get("key"),
                fields.get("kind"),
                json.isEmpty() ? null : JsonParser.parseString(json),
                fields.get("writer"));
    }
}
