package uncia;

import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What the catalogue's Java functions share: the {@code uncia} key of the answer. Compiled with the handler when a
 * function is packaged. It needs little of Java's own library, because each class is paid for at each cold start.
 */
public final class Envelope {
    private static final String INSTANCE = newInstance();
    private static final AtomicLong CALLS = new AtomicLong();

    private final long cpu = cpuNs();
    private final long start = unixNs();
    private final boolean fresh = CALLS.getAndIncrement() == 0;

    /** Begins an invocation. */
    public Envelope() {}

    /**
     * The answer to the invocation.
     *
     * @param result what the function answers with
     * @param valid whether that was checked and is right
     */
    public Map<String, Object> seal(Map<String, Object> result, boolean valid) {
        Map<String, Object> envelope = new LinkedHashMap<>();
        envelope.put("fresh", fresh);
        envelope.put("instance", INSTANCE);
        envelope.put("handler_start_ns", start);
        envelope.put("handler_end_ns", unixNs());
        envelope.put("cpu_ns", cpuNs() - cpu);
        envelope.put("valid", valid);
        Map<String, Object> answer = new LinkedHashMap<>(result);
        answer.put("uncia", envelope);
        return answer;
    }

    /** Some random letters. A generator of Java's own takes longer to load than all else. */
    private static String newInstance() {
        byte[] random = new byte[8];
        try (InputStream source = new FileInputStream("/dev/urandom")) {
            if (source.read(random) < random.length) {
                throw new IOException("there are no random numbers");
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        StringBuilder name = new StringBuilder();
        for (byte part : random) {
            name.append(Character.forDigit(part >> 4 & 15, 16)).append(Character.forDigit(part & 15, 16));
        }
        return name.toString();
    }

    private static long unixNs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000 + now.getNano();
    }

    /** CPU time that the threads of this process have used, in ns, as the kernel says. */
    private static long cpuNs() {
        // When it is asked for this, the kernel brings its account of the asking thread up to date.
        read("/proc/self/stat");
        String[] threads = new File("/proc/self/task").list();
        long sum = 0;
        for (String thread : threads == null ? new String[0] : threads) {
            String account = read("/proc/self/task/" + thread + "/schedstat");
            // Nothing at all of one that has just ended.
            int end = account.indexOf(' ');
            sum += end < 0 ? 0 : Long.parseLong(account.substring(0, end));
        }
        return sum;
    }

    private static String read(String path) {
        byte[] text = new byte[512];
        try (InputStream file = new FileInputStream(path)) {
            return new String(text, 0, Math.max(file.read(text), 0), StandardCharsets.US_ASCII);
        } catch (IOException error) {
            return "";
        }
    }
}
