//! Workers that join this controller.

use std::sync::Arc;

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use hyper::upgrade::OnUpgrade;
use serde_json::json;

use super::body::Connected;
use super::error::{Answer, ApiError, json_answer};
use super::{Api, invoke};
use crate::cluster::{INTRODUCTION_HEADER, Introduction, Members, PROTOCOL, engine_version};

/// Takes a worker in.
pub(super) fn join(api: &Arc<Api>, head: &mut Parts) -> Result<Answer, ApiError> {
    let members = members(api)?;
    let about = introduction(head)?;
    let asks = head.headers.get(UPGRADE).is_some_and(|it| it.as_bytes() == PROTOCOL.as_bytes());
    let upgrade = head.extensions.remove::<OnUpgrade>().filter(|_| asks).ok_or_else(|| {
        ApiError::invalid(format!("A worker joins by a connection that becomes {PROTOCOL}"))
    })?;
    if members.has(&about.name) {
        return Err(ApiError::conflict(format!(
            "A worker named {} has joined already; give this one another name (--name)",
            about.name
        )));
    }
    let connected = head.extensions.get::<Connected>().cloned();
    let api = api.clone();
    tokio::spawn(async move {
        // Whoever has gone away meanwhile has not joined.
        if let (Ok(connection), Some(members)) = (upgrade.await, &api.members) {
            members.follow(about, connection, &api.dispatcher).await;
        }
        // It counts as a connection until then.
        drop(connected);
    });
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(answer)
}

/// The workers that have joined.
pub(super) fn list(api: &Api) -> Result<Answer, ApiError> {
    Ok(json_answer(StatusCode::OK, &json!({"workers": members(api)?.describe()})))
}

fn members(api: &Api) -> Result<&Arc<Members>, ApiError> {
    api.members.as_ref().ok_or_else(|| {
        ApiError::invalid(
            "This platform is no controller; start it with `uncia serve --controller` for workers to join",
        )
    })
}

fn introduction(head: &Parts) -> Result<Introduction, ApiError> {
    let text = invoke::header(head, INTRODUCTION_HEADER).unwrap_or_default();
    let about: Introduction = serde_json::from_str(text).map_err(|error| {
        ApiError::invalid(format!("{INTRODUCTION_HEADER} does not say what joins: {error}"))
    })?;
    let ours = engine_version();
    if about.version != ours {
        return Err(ApiError::invalid(format!(
            "The worker's engine is of version {}, this controller's of {ours}; install the same on both",
            about.version
        )));
    }
    about.check_name().map_err(ApiError::invalid)?;
    Ok(about)
}
