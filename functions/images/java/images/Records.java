package images;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.awt.image.BufferedImage;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import uncia.Documents;
import uncia.Documents.ConflictException;
import uncia.Documents.Document;
import uncia.Documents.Step;

/** What is kept of photographs: a record of each, which counts how often it was processed. */
final class Records {
    private static final int ATTEMPTS = 1000;
    private static Documents documents;

    private Records() {}

    private static synchronized Documents documents() {
        if (documents == null) {
            documents = new Documents();
        }
        return documents;
    }

    /** Notes what verify is to find, and forgets what was found before. */
    static void expect(String name, JsonObject expected) {
        documents().put("expected/" + name, expected, null, null);
        documents().delete("images/" + name, null, null);
        for (Documents.Entry entry : documents().list("done/" + name + "/")) {
            documents().delete(entry.key(), null, null);
        }
    }

    /** Writes the record by its revision, and in the same transaction that this request did. */
    static void write(JsonObject found, String request) {
        String name = found.get("name").getAsString();
        JsonObject record = found.getAsJsonObject("record");
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            Document old = documents().get("images/" + name);
            int processed = old.value() == null
                    ? 0
                    : old.value().getAsJsonObject().get("processed").getAsInt();
            record.addProperty("processed", processed + 1);
            try {
                documents()
                        .transact(
                                List.of(
                                        Step.put("images/" + name, old.revision(), record),
                                        Step.put("done/" + name + "/" + request, Documents.ABSENT, new JsonPrimitive(attempt))),
                                request);
                return;
            } catch (ConflictException conflict) {
                if (!conflict.key.equals("images/" + name)) {
                    throw conflict;
                }
            }
        }
        throw new IllegalStateException("others changed the record " + ATTEMPTS + " times meanwhile");
    }

    /** Checks record and thumbnail against what seed noted, and that every request is counted once. */
    static void verify(JsonObject found) throws IOException {
        String name = found.get("name").getAsString();
        JsonElement noted = documents().get("expected/" + name).value();
        JsonElement kept = documents().get("images/" + name).value();
        if (noted == null || kept == null) {
            throw new IllegalStateException("there is no " + (noted == null ? "photograph" : "record of") + " " + name);
        }
        JsonObject expected = noted.getAsJsonObject();
        JsonObject record = kept.getAsJsonObject();
        int width = expected.get("width").getAsInt();
        int height = expected.get("height").getAsInt();
        check("discs", expected.get("discs"), record.get("discs"));
        check("bytes", expected.get("bytes"), record.get("bytes"));
        check("dimensions", new JsonPrimitive(width + "x" + height), record.get("dimensions"));
        check("geo", expected.get("geo"), record.get("geo"));
        int done = documents().list("done/" + name + "/").size();
        check("processed", new JsonPrimitive(done), record.get("processed"));
        BufferedImage thumbnail = Picture.decode(Store.get(Store.thumbnail(name)), 1);
        if (!Thumbnail.fits(thumbnail.getWidth(), thumbnail.getHeight(), width, height)) {
            throw new IllegalStateException(String.format(
                    "the thumbnail has %dx%d pixels, the photograph %dx%d",
                    thumbnail.getWidth(), thumbnail.getHeight(), width, height));
        }
        found.add("record", record);
    }

    /** Compares values as they are read from JSON, where whole numbers may have a decimal point. */
    private static void check(String what, JsonElement expected, JsonElement actual) {
        com.google.gson.Gson gson = new com.google.gson.Gson();
        Object wanted = gson.fromJson(expected, Object.class);
        Object is = gson.fromJson(actual, Object.class);
        if (!java.util.Objects.equals(wanted, is)) {
            throw new IllegalStateException(what + " is " + is + " in the record, and not " + wanted);
        }
    }
}
