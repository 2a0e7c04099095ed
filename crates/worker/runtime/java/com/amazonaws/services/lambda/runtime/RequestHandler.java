package com.amazonaws.services.lambda.runtime;

/** A handler of events that are objects. */
public interface RequestHandler<I, O> {
    O handleRequest(I input, Context context);
}
