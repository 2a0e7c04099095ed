//! The platform's own log as Arrow, and its health.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde_json::json;
use uncia_record::{Epoch, Instance, Table};

use super::error::{Answer, ApiError, json_answer};
use super::limits::ARCHITECTURE;
use super::route::query_values;
use super::{Api, body, bytes_answer, joining, packages};
use crate::instance::Runtime;
use crate::meterlog::{LogError, MAX_PAGE_ROWS, Page, Query, Reader};
use crate::output::{self, MAX_ENTRIES};
use crate::reception::{OWN_ANSWERS, Room};

const ARROW: &str = "application/vnd.apache.arrow.stream";

/// The value of `after` that asks for rows after the newest: none yet, and its id.
const NEWEST: &str = "newest";
/// Room for a page, in rows and in Arrow, until it is sent.
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// A page as it is sent.
struct Encoded {
    stream: Vec<u8>,
    last: i64,
    more: bool,
}

pub(super) async fn answer(
    api: &Arc<Api>,
    path: &[&str],
    head: &Parts,
) -> Result<Answer, ApiError> {
    match path {
        ["health"] => health(api).await,
        ["workers"] => joining::list(api),
        ["output"] => output(api, head.uri.query().unwrap_or("")).await,
        ["code", sha256] => packages::zip(api, sha256, head).await,
        ["layers", layer, blob] => packages::layer(api, layer, blob, head).await,
        [table @ ("invocations" | "spans" | "instances")] => {
            let text = head.uri.query().unwrap_or("");
            let (query, newest) = query(text)?;
            let unread = |error: LogError| ApiError::service(format!("The log: {error}"));
            let held_up = api.log.barrier().await.map_err(unread)?;
            let room = OWN_ANSWERS.enter(PAGE_BYTES).await;
            let (reader, table) = (api.clone(), (*table).to_owned());
            let living = match table.as_str() {
                "instances" => api.dispatcher.living(query.function.as_deref()).await,
                _ => Vec::new(),
            };
            if table == "instances"
                && query_values(text, "living").first().is_some_and(|it| it == "true")
            {
                // As many as there may be instances, which is not many, and all of them.
                let rows = Page { rows: living, last: 0, more: false };
                return Ok(page_answer(encode(&rows), room, head, held_up));
            }
            let read = move || read(&reader, &table, query, newest, &living);
            let read = tokio::task::spawn_blocking(read).await;
            let page = read.map_err(|error| ApiError::service(error.to_string()))?;
            let page = page.map_err(unread)?;
            Ok(page_answer(page, room, head, held_up))
        }
        _ => Err(ApiError::no_operation(&head.method, head.uri.path())),
    }
}

fn page_answer(page: Encoded, room: Option<Room>, head: &Parts, held_up: usize) -> Answer {
    let mut answer = bytes_answer(ARROW, body::occupying(room, head, page.stream));
    let more = HeaderValue::from_static(if page.more { "true" } else { "false" });
    answer.headers_mut().insert("x-uncia-last-rowid", page.last.into());
    answer.headers_mut().insert("x-uncia-more", more);
    answer.headers_mut().insert("x-uncia-held-up", held_up.into());
    answer
}

/// Which rows a request asks for, and whether only those after the newest.
fn query(text: &str) -> Result<(Query, bool), ApiError> {
    let number = |key: &str, least: i64| -> Result<Option<i64>, ApiError> {
        match query_values(text, key).first() {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(number) if number >= least => Ok(Some(number)),
                _ => Err(ApiError::invalid(format!(
                    "{key} must be a whole number of at least {least}, not {value:?}"
                ))),
            },
        }
    };
    let limit = number("limit", 1)?.and_then(|limit| usize::try_from(limit).ok());
    let newest = query_values(text, "after").first().is_some_and(|after| after == NEWEST);
    let query = Query {
        after: if newest { 0 } else { number("after", 0)?.unwrap_or(0) },
        function: query_values(text, "function").into_iter().next(),
        limit: limit.unwrap_or(MAX_PAGE_ROWS).min(MAX_PAGE_ROWS),
    };
    Ok((query, newest))
}

fn read(
    api: &Api,
    table: &str,
    mut query: Query,
    newest: bool,
    living: &[Instance],
) -> Result<Encoded, LogError> {
    let reader = Reader::open(api.log.path())?;
    if newest {
        query.after = reader.newest(table)?;
    }
    match table {
        "invocations" => reader.invocations(&query).map(|page| encode(&page)),
        "spans" => reader.spans(&query).map(|page| encode(&page)),
        _ => {
            let mut page = reader.instances(&query)?;
            bring_up_to_date(&mut page.rows, living);
            Ok(encode(&page))
        }
    }
}

fn encode<T: Table>(page: &Page<T>) -> Encoded {
    Encoded { stream: T::ipc(&page.rows, Epoch::UNIX), last: page.last, more: page.more }
}

/// Puts into the rows of instances that live what they have served since they became ready.
fn bring_up_to_date(rows: &mut [Instance], living: &[Instance]) {
    let ready = living.iter().filter(|instance| instance.initialized.is_some());
    let living: HashMap<&str, &Instance> =
        ready.map(|instance| (&*instance.instance, instance)).collect();
    for row in rows.iter_mut().filter(|row| row.ended.is_none()) {
        if let Some(now) = living.get(&*row.instance) {
            (row.invocations, row.idle_cpu) = (now.invocations, now.idle_cpu);
        }
    }
}

async fn health(api: &Arc<Api>) -> Result<Answer, ApiError> {
    let features = api.features().await?;
    let counts = api.dispatcher.counts().await;
    let enforcer = api.host.enforcer();
    let runtimes = Runtime::all()
        .iter()
        .filter_map(|runtime| Some((runtime.name(), api.host.runtime_version(*runtime)?)));
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "architecture": ARCHITECTURE,
        "runtimes": runtimes.collect::<BTreeMap<_, _>>(),
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
        "policies": api.config.policies.iter().collect::<BTreeMap<_, _>>(),
        "precedence": api.host.has_precedence(),
        "tariff": api.config.tariff,
        "enforcer": {
            "cpu_ns": enforcer.cpu_ns,
            "looks": enforcer.looks,
            "realtime": enforcer.realtime,
        },
        "capabilities": api.capabilities(),
        "features": features,
        "warnings": api.warnings(),
    });
    Ok(json_answer(StatusCode::OK, &body))
}

/// What functions printed in their last invocations, as an array of JSON.
async fn output(api: &Arc<Api>, text: &str) -> Result<Answer, ApiError> {
    let first = |key: &str| query_values(text, key).into_iter().next();
    let limit = first("limit").map_or(Ok(MAX_ENTRIES), |limit| limit.parse());
    let Some(limit) = limit.ok().filter(|limit| (1..=MAX_ENTRIES).contains(limit)) else {
        return Err(ApiError::invalid(format!("limit must be 1 to {MAX_ENTRIES}")));
    };
    let query = output::Query { function: first("function"), request_id: first("request"), limit };
    let _room = OWN_ANSWERS.enter(PAGE_BYTES).await;
    let log = api.output.clone();
    let read = tokio::task::spawn_blocking(move || log.read(&query)).await;
    let unread = |error: std::io::Error| ApiError::service(format!("The output: {error}"));
    let entries = read.map_err(std::io::Error::other).and_then(|it| it).map_err(unread)?;
    Ok(json_answer(StatusCode::OK, &json!(entries)))
}
