package com.amazonaws.services.lambda.runtime;

import java.util.Map;

/** What a mobile application says of itself. */
public interface ClientContext {
    Client getClient();

    Map<String, String> getCustom();

    Map<String, String> getEnvironment();
}
