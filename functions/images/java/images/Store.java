package images;

import software.amazon.awssdk.core.sync.RequestBody;
import software.amazon.awssdk.http.urlconnection.UrlConnectionHttpClient;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.NoSuchKeyException;

/** The objects of this function, in the service store, which it must reach. */
final class Store {
    private static final String BUCKET = System.getenv("UNCIA_STORE_BUCKET");
    private static final String PREFIX = System.getenv().getOrDefault("UNCIA_STORE_PREFIX", "");
    private static S3Client client;

    private Store() {}

    static String photograph(String name) {
        return "images/" + name + ".jpg";
    }

    static String thumbnail(String name) {
        return "images/" + name + "-thumbnail.jpg";
    }

    static byte[] get(String key) {
        try {
            return client().getObjectAsBytes(it -> it.bucket(BUCKET).key(PREFIX + key)).asByteArray();
        } catch (NoSuchKeyException error) {
            throw new IllegalArgumentException("there is no object " + key + " in the store", error);
        }
    }

    static void put(String key, byte[] content) {
        client().putObject(it -> it.bucket(BUCKET).key(PREFIX + key), RequestBody.fromBytes(content));
    }

    private static synchronized S3Client client() {
        if (BUCKET == null) {
            throw new IllegalStateException("this function reaches no store: name it in its reach ([store, documents])");
        }
        if (client == null) {
            client = S3Client.builder()
                    .httpClientBuilder(UrlConnectionHttpClient.builder())
                    .forcePathStyle(true)
                    .build();
        }
        return client;
    }
}
