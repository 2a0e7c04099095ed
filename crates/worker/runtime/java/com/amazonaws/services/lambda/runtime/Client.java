package com.amazonaws.services.lambda.runtime;

/** A mobile application. */
public interface Client {
    String getInstallationId();

    String getAppTitle();

    String getAppVersionName();

    String getAppVersionCode();

    String getAppPackageName();
}
