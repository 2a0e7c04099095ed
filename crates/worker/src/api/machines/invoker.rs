//! How executions invoke functions.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use uncia_flow::Failure;

use crate::api::Api;
use crate::api::error::ApiError;
use crate::api::invoke::{self, Call, Names};
use crate::api::versions::find_version;
use crate::failure;
use crate::ids;
use crate::machines::{Hop, Invoke};

/// Most bytes of what a failure's cause says, as in the API.
const MAX_CAUSE_BYTES: usize = 32_768;

/// Invokes functions of this platform for executions.
pub(crate) fn invoker(api: Arc<std::sync::OnceLock<Arc<Api>>>) -> Invoke {
    Arc::new(move |function, payload, hop| {
        let api = api.clone();
        Box::pin(async move {
            match api.get() {
                Some(api) => invoke_function(api, &function, payload, hop).await,
                None => Err(of_api(&ApiError::unavailable("The platform is starting"))),
            }
        })
    })
}

async fn invoke_function(
    api: &Arc<Api>,
    function: &str,
    payload: Bytes,
    hop: Hop,
) -> Result<Value, Failure> {
    let target = find_version(api, function, "").map_err(|error| of_api(&error))?;
    let request_id = ids::uuid();
    let names = Names {
        invocation: request_id.clone(),
        parent: Some(hop.cause),
        stage: Some(hop.stage),
        generation: hop.generation,
        request_id,
    };
    let call = Call { target, names, payload, head: None, client_context: None, hint: None };
    let completion = invoke::run(api, call, None).await;
    let completion = completion.map_err(|error| of_api(&error))?;
    let request_id = completion.row().request_id.clone().unwrap_or_default();
    let (body, has_failed) =
        invoke::payload(&completion.disposition, completion.row(), &request_id)
            .map_err(|error| of_api(&error))?;
    if has_failed {
        let error = failure::Failure::read(&body).kind().unwrap_or("Lambda.Unknown").to_owned();
        return Err(Failure { error, cause: cut(String::from_utf8_lossy(&body).into_owned()) });
    }
    let (limit, bytes) = (api.machines.data_limit(), crate::json::plain_bytes(&body));
    if bytes > limit {
        // Before it is read: its values take many times the memory.
        return Err(Failure {
            error: uncia_flow::names::DATA_LIMIT.to_owned(),
            cause: format!(
                "the function's answer has {bytes} bytes as JSON, and the limit is {limit}"
            ),
        });
    }
    serde_json::from_slice(&crate::json::well_formed(&body)).map_err(|error| Failure {
        error: uncia_flow::names::TASK_FAILED.to_owned(),
        cause: format!("the function's answer is no JSON: {error}"),
    })
}

/// A cause of a failure, of which every event of a history may hold one.
pub(super) fn cut(mut cause: String) -> String {
    let end = (0..=MAX_CAUSE_BYTES.min(cause.len())).rev().find(|end| cause.is_char_boundary(*end));
    cause.truncate(end.unwrap_or(0));
    cause
}

/// A refusal of the Lambda API, as Step Functions names it.
fn of_api(error: &ApiError) -> Failure {
    Failure { error: format!("Lambda.{}", error.kind), cause: error.message.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_cut_between_characters() {
        assert_eq!(cut("é".to_owned()), "é");
        assert_eq!(cut(format!("x{}", "é".repeat(MAX_CAUSE_BYTES))).len(), MAX_CAUSE_BYTES - 1);
    }
}
