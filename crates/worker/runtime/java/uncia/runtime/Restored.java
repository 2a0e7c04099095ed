package uncia.runtime;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;

/** What a process does first that was restored from a checkpoint: it becomes another instance. */
final class Restored {
    private Restored() {}

    static void begin(Api api) throws Api.Gone {
        api.send(api.get("restore/next", ""));
        Api.Response instance = api.receive();
        try {
            environment((Map<?, ?>) Json.parse(instance.body));
            random();
        } catch (ReflectiveOperationException | RuntimeException error) {
            // It would be the same instance as another.
            System.err.println("this Java cannot be restored: " + error);
            Runtime.getRuntime().halt(1);
        }
    }

    /** Java reads the environment once, into maps that nobody can write. */
    @SuppressWarnings("unchecked")
    private static void environment(Map<?, ?> variables) throws ReflectiveOperationException {
        Map<String, String> current = System.getenv();
        Field wrapped = current.getClass().getDeclaredField("m");
        wrapped.setAccessible(true);
        Map<String, String> strings = (Map<String, String>) wrapped.get(current);
        strings.clear();
        for (Map.Entry<?, ?> variable : variables.entrySet()) {
            strings.put((String) variable.getKey(), (String) variable.getValue());
        }
    }

    /** Gives the generators that Java keeps other seeds. What reads the kernel's numbers does so each time. */
    private static void random() throws ReflectiveOperationException {
        SecureRandom source = new SecureRandom();
        Field uniquifier = Random.class.getDeclaredField("seedUniquifier");
        uniquifier.setAccessible(true);
        ((AtomicLong) uniquifier.get(null)).set(source.nextLong());
        Class<?> holder = Class.forName("java.lang.Math$RandomNumberGeneratorHolder");
        Field generator = holder.getDeclaredField("randomNumberGenerator");
        generator.setAccessible(true);
        ((Random) generator.get(null)).setSeed(source.nextLong());
        // Each thread has its own; that of this one, on which the handler runs, is made anew.
        Field seed = Thread.class.getDeclaredField("threadLocalRandomSeed");
        seed.setAccessible(true);
        ThreadLocalRandom.current();
        seed.setLong(Thread.currentThread(), source.nextLong());
    }
}
