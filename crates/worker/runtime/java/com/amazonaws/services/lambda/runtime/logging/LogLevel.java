package com.amazonaws.services.lambda.runtime.logging;

/** How grave a message is. */
public enum LogLevel {
    UNDEFINED,
    TRACE,
    DEBUG,
    INFO,
    WARN,
    ERROR,
    FATAL
}
