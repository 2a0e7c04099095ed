package images;

import com.amazonaws.services.lambda.runtime.Context;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.ToNumberPolicy;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import uncia.Envelope;
import uncia.Parameters;

/**
 * The stages of image processing: metadata, transform, discs, thumbnail and record, one after another; before them
 * seed, and verify at the end. Each is deployed as a function of its own.
 */
public final class Images {
    // Whole numbers stay whole.
    private static final Gson GSON = new GsonBuilder()
            .setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE)
            .create();

    public Map<String, Object> handle(Map<String, Object> event, Context context) throws IOException {
        Envelope envelope = new Envelope();
        Map<String, Object> given = Parameters.of(event);
        String stage = (String) given.getOrDefault("stage", "seed");
        JsonObject found = found(given.get("found"));
        if (!found.has("name")) {
            found.addProperty("name", (String) given.getOrDefault("name", "photograph"));
        }
        switch (stage) {
            case "seed" -> Seed.make(found, given);
            case "metadata" -> Metadata.read(found);
            case "transform" -> Metadata.transform(found);
            case "discs" -> Discs.find(found);
            case "thumbnail" -> Thumbnail.make(found);
            case "record" -> Records.write(found, context.getAwsRequestId());
            case "verify" -> Records.verify(found);
            default -> throw new IllegalArgumentException("stage: there is none called '" + stage + "'");
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("stage", stage);
        answer.put("found", GSON.fromJson(found, Map.class));
        return envelope.seal(answer, true);
    }

    private static JsonObject found(Object given) {
        if (given == null || "".equals(given)) {
            return new JsonObject();
        }
        JsonElement value = given instanceof String text ? JsonParser.parseString(text) : GSON.toJsonTree(given);
        if (!value.isJsonObject()) {
            throw new IllegalArgumentException("found: it is no object of what stages have found");
        }
        return value.getAsJsonObject();
    }
}
