package com.amazonaws.services.lambda.runtime;

/** Whom a mobile application acts for. */
public interface CognitoIdentity {
    String getIdentityId();

    String getIdentityPoolId();
}
