package uncia.runtime;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * Makes what later instances of the function start with, when the platform orders it: an archive of the classes that this
 * one has loaded, those among them that were made while it ran, or a cache of them with how often their methods ran.
 */
final class Share {
    private static final String ARCHIVE = "/tmp/.classes.jsa";

    /** Where Java was told to write what it records when it was started, and where the cache is then. */
    private static final String RECORDS = "-XX:AOTMode=record";
    private static final String RECORDED = "/tmp/.profile.conf";
    private static final String CACHE = "/tmp/.profile.aot";

    private static final int CHUNK = 3 << 20;

    private Share() {}

    /** Makes the class path longer by what cannot be on it from the start, as Java records no folders. */
    static void append(String path) throws Exception {
        ClassLoader loader = ClassLoader.getSystemClassLoader();
        Method append = loader.getClass().getDeclaredMethod("appendToClassPathForInstrumentation", String.class);
        append.setAccessible(true);
        int begin = 0;
        // Without a regular expression.
        for (int end = path.indexOf(':'); end >= 0; end = path.indexOf(':', begin)) {
            append.invoke(loader, path.substring(begin, end));
            begin = end + 1;
        }
        append.invoke(loader, path.substring(begin));
        // For whoever looks through it for classes.
        System.setProperty("java.class.path", System.getProperty("java.class.path") + ':' + path);
    }

    /** What the order is answered with: the file from its {@code offset} on, some megabytes in base64; null at its end. */
    static byte[] answer(String order, byte[] event) throws Exception {
        long offset = ((Number) ((Map<?, ?>) Json.parse(event)).get("offset")).longValue();
        boolean profile = order.equals("profile");
        File archive = new File(profile ? CACHE : ARCHIVE);
        if (offset == 0 && profile) {
            endRecording();
            assemble();
        } else if (offset == 0) {
            dump();
        }
        String answer = "null";
        if (offset < archive.length()) {
            answer = '"' + Base64.getEncoder().encodeToString(piece(archive, offset)) + '"';
        } else if (!archive.delete()) {
            throw new IOException("the archive cannot be removed");
        }
        return answer.getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] piece(File archive, long offset) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(archive, "r")) {
            file.seek(offset);
            byte[] chunk = new byte[(int) Math.min(CHUNK, file.length() - offset)];
            file.readFully(chunk);
            return chunk;
        }
    }

    /** As jcmd does, to which a process would have to open a socket. */
    private static void dump() throws Exception {
        for (Method method : Class.forName("jdk.internal.misc.CDS").getDeclaredMethods()) {
            if (method.getName().equals("dumpSharedArchive")) {
                method.setAccessible(true);
                try {
                    method.invoke(null, false, ARCHIVE);
                    return;
                } catch (InvocationTargetException error) {
                    throw new IOException("Java makes no archive: " + error.getCause().getMessage(), error.getCause());
                }
            }
        }
        throw new IOException("this Java cannot make an archive while it runs");
    }

    /** As jcmd does. By name, as a Java without this module runs functions too. */
    private static void endRecording() throws Exception {
        Object server = Class.forName("java.lang.management.ManagementFactory").getMethod("getPlatformMBeanServer").invoke(null);
        Class<?> name = Class.forName("javax.management.ObjectName");
        Method invoke = Class.forName("javax.management.MBeanServer")
                .getMethod("invoke", name, String.class, Object[].class, String[].class);
        Object commands = name.getConstructor(String.class).newInstance("com.sun.management:type=DiagnosticCommand");
        try {
            invoke.invoke(server, commands, "aotEndRecording", new Object[0], new String[0]);
        } catch (InvocationTargetException error) {
            throw new IOException("Java records nothing: " + error.getCause().getMessage(), error.getCause());
        }
    }

    /** Has another Java make the cache of what this one has recorded, which runs nothing of the function. */
    private static void assemble() throws Exception {
        List<String> command = new ArrayList<>();
        if (!new File(RECORDED).isFile()) {
            throw new IOException("Java has recorded nothing, as JAVA_TOOL_OPTIONS has options of archives");
        }
        String self = new String(Files.readAllBytes(Path.of("/proc/self/cmdline")), StandardCharsets.UTF_8);
        for (String argument : self.split("\0")) {
            command.add(argument.equals(RECORDS) ? "-XX:AOTMode=create" : argument);
        }
        command.set(0, System.getProperty("java.home") + "/bin/java");
        command.add(1, "-XX:AOTCache=" + CACHE);
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        process.getOutputStream().close();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).trim();
        int code = process.waitFor();
        Files.deleteIfExists(Path.of(RECORDED));
        if (code != 0 || !new File(CACHE).isFile()) {
            throw new IOException("Java makes no cache: " + output.substring(output.lastIndexOf('\n') + 1));
        }
    }
}
