//! Tags, some of which are settings (`uncia:<key>`).

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use super::Api;
use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, TagForm};
use super::functions::{change, find};
use super::limits::{check_tags, settings};
use super::route::query_values;

pub(super) fn list(api: &Api, arn: &str) -> Result<Answer, ApiError> {
    let function = find(api, arn)?;
    Ok(json_answer(StatusCode::OK, &json!({"Tags": function.tags})))
}

pub(super) fn tag(api: &Arc<Api>, arn: &str, body: &[u8]) -> Result<Answer, ApiError> {
    let form: TagForm = forms::read(body, &[])?;
    set(api, arn, |tags| tags.extend(form.Tags))
}

pub(super) fn untag(api: &Arc<Api>, arn: &str, query: &str) -> Result<Answer, ApiError> {
    let keys = query_values(query, "tagKeys");
    if keys.is_empty() {
        return Err(ApiError::invalid("tagKeys names no tag"));
    }
    set(api, arn, |tags| tags.retain(|key, _| !keys.contains(key)))
}

fn set(
    api: &Arc<Api>,
    arn: &str,
    edit: impl FnOnce(&mut BTreeMap<String, String>),
) -> Result<Answer, ApiError> {
    change(api, arn, None, |function| {
        edit(&mut function.tags);
        check_tags(&function.tags)?;
        function.overrides = {
            let is_image = function.configuration.image.is_some();
            let default = function.default_architecture(&api.config);
            settings(api, &function.tags, function.runtime(), is_image, default)?
        };
        Ok(())
    })?;
    Ok(empty_answer(StatusCode::NO_CONTENT))
}
