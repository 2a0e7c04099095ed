import java.lang.management.*;
import java.lang.reflect.*;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

/** Threads, a collector at work, reflection, files and sockets. */
public class Handler {
    interface Adds {
        int add(int left, int right);
    }

    private static final class Hidden {
        private final String text;

        private Hidden(String text) {
            this.text = text;
        }
    }

    public Object handleRequest(Map<String, Object> event) throws Exception {
        Map<String, Object> answer = new TreeMap<>();
        answer.put("sum", LongStream.range(0, 1_000_000).parallel().sum());
        answer.put("threads", threads());
        answer.put("reflection", reflection());
        answer.put("collected", collected());
        answer.put("collector", collectors().get(0).getName().split(" ")[0]);
        answer.put("fetched", fetched());
        answer.put("files", files());
        answer.put("filters", filters());
        return answer;
    }

    private static List<Integer> threads() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        try {
            CyclicBarrier together = new CyclicBarrier(8);
            List<Future<Integer>> results = new ArrayList<>();
            for (int number = 0; number < 8; number++) {
                int factor = number;
                results.add(pool.submit(() -> { together.await(); return factor * factor; }));
            }
            List<Integer> squares = new ArrayList<>();
            for (Future<Integer> result : results) squares.add(result.get());
            return squares;
        } finally {
            pool.shutdownNow();
        }
    }

    private static List<Object> reflection() throws Exception {
        Constructor<Hidden> constructor = Hidden.class.getDeclaredConstructor(String.class);
        constructor.setAccessible(true);
        Field field = Hidden.class.getDeclaredField("text");
        field.setAccessible(true);
        Adds adds = (Adds) Proxy.newProxyInstance(
            Handler.class.getClassLoader(), new Class<?>[] {Adds.class},
            (proxy, method, numbers) -> (int) numbers[0] + (int) numbers[1]);
        int most = 0;
        // Often enough that a compiled accessor takes its place.
        Method max = Math.class.getMethod("max", int.class, int.class);
        for (int number = 0; number < 100; number++) most = (int) max.invoke(null, most, number);
        return List.of(field.get(constructor.newInstance("text")), adds.add(3, 4), most);
    }

    private static List<GarbageCollectorMXBean> collectors() {
        return ManagementFactory.getGarbageCollectorMXBeans();
    }

    private static boolean collected() {
        long before = collectors().stream().mapToLong(it -> it.getCollectionCount()).sum();
        List<byte[]> kept = new ArrayList<>();
        for (int number = 0; number < 2000; number++) {
            byte[] block = new byte[1 << 17];
            if (number % 100 == 0) kept.add(block);
        }
        System.gc();
        long after = collectors().stream().mapToLong(it -> it.getCollectionCount()).sum();
        return after > before && kept.size() == 20;
    }

    private static String fetched() throws Exception {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
             Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
             Socket accepted = server.accept()) {
            accepted.getOutputStream().write("over the network".getBytes(StandardCharsets.UTF_8));
            accepted.shutdownOutput();
            return new String(client.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private static String files() throws Exception {
        Path file = Files.createTempFile("one", null);
        Files.writeString(file, "text");
        Path moved = Files.move(file, file.resolveSibling("two"));
        String text = Files.readString(moved);
        Files.delete(moved);
        return text;
    }

    private static Set<String> filters() throws Exception {
        Set<String> modes = new TreeSet<>();
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                try {
                    for (String line : Files.readAllLines(thread.resolve("status"))) {
                        if (line.startsWith("Seccomp:")) modes.add(line.substring(8).trim());
                    }
                } catch (NoSuchFileException ended) {
                    // It was one of the pool's.
                }
            }
        }
        return modes;
    }
}
