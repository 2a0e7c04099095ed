//! The platform's credentials, from its environment: what it signs its own requests with, and what it
//! believes the signatures of others by.

use std::env;

use super::error::ApiError;

/// Credentials of one account.
pub(super) struct Credentials {
    pub access_key_id: String,
    pub secret: String,
    pub token: Option<String>,
    pub region: String,
}

impl Credentials {
    /// `what` needs them: the subject of a sentence.
    pub(super) fn of_environment(what: &str) -> Result<Self, ApiError> {
        let needed = |name: &str| {
            variable(name).ok_or_else(|| {
                ApiError::invalid(format!(
                    "{what} need credentials: start the platform with {name} set"
                ))
            })
        };
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        Ok(Self {
            access_key_id: needed("AWS_ACCESS_KEY_ID")?,
            secret: needed("AWS_SECRET_ACCESS_KEY")?,
            token: variable("AWS_SESSION_TOKEN"),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
        })
    }
}

/// A variable of the environment that says something.
pub(super) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
