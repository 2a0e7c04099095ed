package uncia.runtime;

import com.amazonaws.services.lambda.runtime.ClientContext;
import com.amazonaws.services.lambda.runtime.CognitoIdentity;
import com.amazonaws.services.lambda.runtime.Context;
import com.amazonaws.services.lambda.runtime.LambdaLogger;
import java.util.Map;

/** What a handler may know of its invocation. */
final class Invocation implements Context, LambdaLogger {
    private final Map<String, String> headers;

    Invocation(Map<String, String> headers) {
        this.headers = headers;
    }

    @Override
    public String getAwsRequestId() {
        return headers.get("lambda-runtime-aws-request-id");
    }

    @Override
    public String getLogGroupName() {
        return System.getenv("AWS_LAMBDA_LOG_GROUP_NAME");
    }

    @Override
    public String getLogStreamName() {
        return System.getenv("AWS_LAMBDA_LOG_STREAM_NAME");
    }

    @Override
    public String getFunctionName() {
        return System.getenv("AWS_LAMBDA_FUNCTION_NAME");
    }

    @Override
    public String getFunctionVersion() {
        return System.getenv("AWS_LAMBDA_FUNCTION_VERSION");
    }

    @Override
    public String getInvokedFunctionArn() {
        return headers.get("lambda-runtime-invoked-function-arn");
    }

    @Override
    public CognitoIdentity getIdentity() {
        return null;
    }

    @Override
    public ClientContext getClientContext() {
        String text = headers.get("lambda-runtime-client-context");
        return text == null ? null : new Sender(text);
    }

    @Override
    public int getRemainingTimeInMillis() {
        long left = Long.parseLong(headers.get("lambda-runtime-deadline-ms")) - System.currentTimeMillis();
        return (int) Math.max(left, 0);
    }

    @Override
    public int getMemoryLimitInMB() {
        return Integer.parseInt(System.getenv("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"));
    }

    @Override
    public LambdaLogger getLogger() {
        return this;
    }

    @Override
    public void log(String message) {
        String text = String.valueOf(message);
        System.out.print(text.endsWith("\n") ? text : text + "\n");
    }

    @Override
    public void log(byte[] message) {
        System.out.write(message, 0, message.length);
    }
}
