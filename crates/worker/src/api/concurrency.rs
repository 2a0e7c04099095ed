//! How many instances are reserved for a function.

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::Api;
use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, ConcurrencyForm};
use super::functions::{change, find};

pub(super) fn put(api: &Arc<Api>, reference: &str, body: &[u8]) -> Result<Answer, ApiError> {
    let form: ConcurrencyForm = forms::read(body, &[])?;
    let reserved = form.ReservedConcurrentExecutions;
    reserve(api, reference, Some(reserved))?;
    Ok(json_answer(StatusCode::OK, &json!({"ReservedConcurrentExecutions": reserved})))
}

pub(super) fn delete(api: &Arc<Api>, reference: &str) -> Result<Answer, ApiError> {
    reserve(api, reference, None)?;
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

fn reserve(api: &Arc<Api>, reference: &str, reserved: Option<u32>) -> Result<(), ApiError> {
    change(api, reference, None, |function| {
        let provisioned = function.published.provisioned_instances();
        if let Some(reserved) = reserved.filter(|reserved| u64::from(*reserved) < provisioned) {
            return Err(ApiError::invalid(format!(
                "ReservedConcurrentExecutions {reserved} should not be lower than function's total \
                 provisioned concurrency [{provisioned}]."
            )));
        }
        function.configuration.reserved_concurrency = reserved;
        Ok(())
    })?;
    Ok(())
}

pub(super) fn get(api: &Api, reference: &str) -> Result<Answer, ApiError> {
    let function = find(api, reference)?;
    let body = match function.configuration.reserved_concurrency {
        Some(reserved) => json!({"ReservedConcurrentExecutions": reserved}),
        None => json!({}),
    };
    Ok(json_answer(StatusCode::OK, &body))
}
