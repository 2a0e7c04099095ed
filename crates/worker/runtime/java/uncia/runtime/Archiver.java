package uncia.runtime;

import com.amazonaws.services.lambda.runtime.Context;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.RandomAccessFile;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * Makes the archive that the classes of a package are shared from, which an instance maps into its memory instead of
 * loading and verifying them.
 *
 * <p>A handler of the platform's own: it has another Java load the client, by serving an event to itself, and then all
 * classes of the package, without initializing any: nothing of the package runs. That Java writes the archive when it
 * ends.
 */
public final class Archiver {
    private static final String ARCHIVE = "/tmp/classes.jsa";
    private static final int CHUNK = 3 << 20;
    private static final int MAX_CLASSES = 5000;
    private static final long TIMEOUT_S = 50;

    private Archiver() {}

    /** The archive's bytes from {@code offset} on, some megabytes in base64; null at its end. */
    public static String archive(Map<String, Object> event) throws IOException, InterruptedException {
        long offset = ((Number) event.get("offset")).longValue();
        File archive = new File(ARCHIVE);
        if (offset == 0) {
            make();
        }
        if (offset >= archive.length()) {
            return null;
        }
        try (RandomAccessFile file = new RandomAccessFile(archive, "r")) {
            file.seek(offset);
            byte[] chunk = new byte[(int) Math.min(CHUNK, file.length() - offset)];
            file.readFully(chunk);
            return Base64.getEncoder().encodeToString(chunk);
        }
    }

    private static void make() throws IOException, InterruptedException {
        List<String> command = new ArrayList<>();
        command.add(System.getProperty("java.home") + "/bin/java");
        // As instances are started: an archive fits no other collector.
        for (String argument : ProcessHandle.current().info().arguments().orElse(new String[0])) {
            if (argument.startsWith("-X")) {
                command.add(argument);
            }
        }
        command.add("-XX:ArchiveClassesAtExit=" + ARCHIVE);
        command.add("-Xlog:disable");
        command.add("-Xlog:all=error:stderr");
        command.add("-cp");
        command.add(System.getProperty("uncia.classpath"));
        command.add(Archiver.class.getName());
        Process process = new ProcessBuilder(command).inheritIO().start();
        if (!process.waitFor(TIMEOUT_S, TimeUnit.SECONDS)) {
            process.destroyForcibly();
            throw new IOException("loading its classes takes too long");
        }
        if (!new File(ARCHIVE).isFile()) {
            throw new IOException("Java has made no archive, and ended with status " + process.exitValue());
        }
    }

    /** What the other Java does. */
    public static void main(String[] arguments) throws Throwable {
        rehearse();
        ClassLoader loader = ClassLoader.getSystemClassLoader();
        int left = MAX_CLASSES;
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            try (JarFile jar = new JarFile(path)) {
                for (Enumeration<JarEntry> entries = jar.entries(); entries.hasMoreElements() && left > 0; ) {
                    String name = entries.nextElement().getName();
                    if (name.endsWith(".class") && !name.startsWith("META-INF/") && !name.endsWith("-info.class")) {
                        left--;
                        load(name.substring(0, name.length() - ".class".length()).replace('/', '.'), loader);
                    }
                }
            } catch (IOException error) {
                // No jar, or a damaged one: Java does without it as well.
            }
        }
    }

    private static void load(String name, ClassLoader loader) {
        try {
            Class.forName(name, false, loader);
        } catch (ClassNotFoundException | LinkageError error) {
            // It refers to what the package lacks, which may never be needed.
        }
    }

    /** Has the client serve two events of its own. */
    private static void rehearse() throws Throwable {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread answering = new Thread(() -> answer(server));
            answering.start();
            Api api = new Api("127.0.0.1:" + server.getLocalPort());
            Main.serve(api, Handler.load(Archiver.class.getName() + "::echo"));
        } catch (Api.Gone gone) {
            // All events are served.
        }
    }

    /** What is served to the client: the second event is one that it fails at. */
    private static void answer(ServerSocket server) {
        String head = "HTTP/1.1 200 OK\r\nLambda-Runtime-Aws-Request-Id: id\r\nLambda-Runtime-Deadline-Ms: 1\r\n"
                + "Lambda-Runtime-Trace-Id: trace\r\nContent-Length: ";
        String taken = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
        try (Socket socket = server.accept()) {
            String event = "{\"a\": [1, 2.5, \"b\", true, null]}";
            String events = head + event.length() + "\r\n\r\n" + event + taken + head + "4\r\n\r\nnull" + taken;
            socket.getOutputStream().write(events.getBytes(StandardCharsets.US_ASCII));
            // Until the client asks for a third event.
            InputStream input = socket.getInputStream();
            StringBuilder received = new StringBuilder();
            for (int read = input.read(); read >= 0 && !isThird(received); read = input.read()) {
                received.append((char) read);
            }
        } catch (IOException error) {
            // The client is gone.
        }
    }

    private static boolean isThird(StringBuilder received) {
        String question = "GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\n";
        int asked = 0;
        for (int at = received.indexOf(question); at >= 0; at = received.indexOf(question, at + 1)) {
            asked++;
        }
        return asked == 3;
    }

    /** A handler that uses what most do. */
    public static Map<String, Object> echo(Map<String, Object> event, Context context) {
        if (event == null) {
            throw new IllegalArgumentException("an error of its own, to see one reported");
        }
        context.getRemainingTimeInMillis();
        event.put("at", Instant.now().getEpochSecond());
        return event;
    }
}
