package com.amazonaws.services.lambda.runtime;

import com.amazonaws.services.lambda.runtime.logging.LogLevel;

/** Writes into the function's log. */
public interface LambdaLogger {
    void log(String message);

    void log(byte[] message);

    default void log(String message, LogLevel level) {
        log(message);
    }

    default void log(byte[] message, LogLevel level) {
        log(message);
    }
}
