package uncia.runtime;

import com.amazonaws.services.lambda.runtime.Client;
import com.amazonaws.services.lambda.runtime.ClientContext;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** What the client context of an invocation says of who sent it: JSON, as the header has it. */
final class Sender implements ClientContext, Client {
    private final Map<?, ?> values;

    Sender(String text) {
        // Headers are read byte by byte.
        Object parsed = Json.parse(text.getBytes(StandardCharsets.ISO_8859_1));
        values = parsed instanceof Map<?, ?> map ? map : Map.of();
    }

    @Override
    public Client getClient() {
        return values.get("client") instanceof Map<?, ?> ? this : null;
    }

    @Override
    public Map<String, String> getCustom() {
        return texts("custom");
    }

    @Override
    public Map<String, String> getEnvironment() {
        return texts("env");
    }

    private Map<String, String> texts(String key) {
        if (!(values.get(key) instanceof Map<?, ?> map)) {
            return null;
        }
        Map<String, String> texts = new LinkedHashMap<>();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            texts.put(String.valueOf(entry.getKey()), String.valueOf(entry.getValue()));
        }
        return texts;
    }

    private String ofClient(String key) {
        Object value = ((Map<?, ?>) values.get("client")).get(key);
        return value == null ? null : value.toString();
    }

    @Override
    public String getInstallationId() {
        return ofClient("installation_id");
    }

    @Override
    public String getAppTitle() {
        return ofClient("app_title");
    }

    @Override
    public String getAppVersionName() {
        return ofClient("app_version_name");
    }

    @Override
    public String getAppVersionCode() {
        return ofClient("app_version_code");
    }

    @Override
    public String getAppPackageName() {
        return ofClient("app_package_name");
    }
}
