//! The platform's own log as Arrow, its health, and the packages it keeps.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;
use serde_json::json;
use uncia_record::{Epoch, Instance, Table};

use super::error::{Answer, ApiError, json_answer};
use super::route::query_values;
use super::{Api, bytes_answer};
use crate::meterlog::{LogError, Query, Reader};

const ARROW: &str = "application/vnd.apache.arrow.stream";

pub async fn answer(api: &Arc<Api>, path: &[&str], head: &Parts) -> Result<Answer, ApiError> {
    match path {
        ["health"] => Ok(health(api).await),
        ["code", sha256] => code(api, sha256),
        [table @ ("invocations" | "spans" | "instances")] => {
            let query = query(head.uri.query().unwrap_or(""))?;
            let unread = |error: LogError| ApiError::service(format!("The log: {error}"));
            api.log.barrier().await.map_err(unread)?;
            let (api, table) = (api.clone(), (*table).to_owned());
            let living = match table.as_str() {
                "instances" => api.dispatcher.living(query.function.as_deref()).await,
                _ => Vec::new(),
            };
            let read = tokio::task::spawn_blocking(move || read(&api, &table, &query, living));
            match read.await {
                Ok(Ok((stream, last))) => {
                    let mut answer = bytes_answer(ARROW, stream);
                    answer.headers_mut().insert("x-uncia-last-rowid", last.into());
                    Ok(answer)
                }
                Ok(Err(error)) => Err(unread(error)),
                Err(error) => Err(ApiError::service(error.to_string())),
            }
        }
        _ => Err(ApiError::no_operation(&head.method, head.uri.path())),
    }
}

fn query(text: &str) -> Result<Query, ApiError> {
    let number = |key: &str| -> Result<Option<i64>, ApiError> {
        match query_values(text, key).first() {
            None => Ok(None),
            Some(value) => value.parse().map(Some).map_err(|_| {
                ApiError::invalid(format!("{key} must be a whole number, not {value:?}"))
            }),
        }
    };
    Ok(Query {
        after: number("after")?.unwrap_or(0),
        function: query_values(text, "function").into_iter().next(),
        limit: number("limit")?,
    })
}

fn read(
    api: &Api,
    table: &str,
    query: &Query,
    living: Vec<Instance>,
) -> Result<(Vec<u8>, i64), LogError> {
    let reader = Reader::open(api.log.path())?;
    Ok(match table {
        "invocations" => {
            let (rows, last) = reader.invocations(query)?;
            (Table::ipc(&rows, Epoch::UNIX), last)
        }
        "spans" => {
            let (rows, last) = reader.spans(query)?;
            (Table::ipc(&rows, Epoch::UNIX), last)
        }
        _ => {
            let (mut rows, last) = reader.ended_instances(query)?;
            rows.extend(living);
            (Table::ipc(&rows, Epoch::UNIX), last)
        }
    })
}

async fn health(api: &Api) -> Answer {
    let counts = api.dispatcher.counts().await;
    let enforcer = api.host.enforcer();
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "functions": api.registry.all().len(),
        "instances": {
            "starting": counts.starting,
            "busy": counts.busy,
            "idle": counts.idle,
            "frozen": counts.frozen,
            "scaled_down": counts.scaled_down,
            "stopping": counts.stopping,
        },
        "waiting": counts.waiting,
        "enforcer": {
            "cpu_ns": enforcer.cpu_ns,
            "looks": enforcer.looks,
            "realtime": enforcer.realtime,
        },
        "capabilities": api.capabilities(),
        "warnings": api.capabilities().warnings,
    });
    json_answer(StatusCode::OK, &body)
}

fn code(api: &Api, sha256: &str) -> Result<Answer, ApiError> {
    let function = api.registry.all().into_iter().find(|it| it.code.sha256() == sha256);
    let function = function.ok_or_else(|| ApiError::not_found("There is no such package"))?;
    let zip = std::fs::read(function.code.zip())
        .map_err(|error| ApiError::service(format!("The package cannot be read: {error}")))?;
    Ok(bytes_answer("application/zip", zip))
}
