package com.amazonaws.services.lambda.runtime;

/** What a handler may know of its invocation. */
public interface Context {
    String getAwsRequestId();

    String getLogGroupName();

    String getLogStreamName();

    String getFunctionName();

    String getFunctionVersion();

    String getInvokedFunctionArn();

    CognitoIdentity getIdentity();

    ClientContext getClientContext();

    int getRemainingTimeInMillis();

    int getMemoryLimitInMB();

    LambdaLogger getLogger();
}
