//! Which path is which operation.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;

use super::error::{Answer, ApiError};
use super::{
    Api, aliases, concurrency, confine, functions, guard, invoke, layers, logs, machines,
    permissions, provisioned, streams, tags, triggers, urls, versions,
};
use crate::published::LATEST;
use crate::{metrics, page};

/// Finds the operation and does it.
pub(super) async fn answer(api: &Arc<Api>, head: &Parts, body: Bytes) -> Result<Answer, ApiError> {
    let path = head.uri.path();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let unknown = || ApiError::no_operation(&head.method, path);
    match (&head.method, parts.as_slice()) {
        (_, ["url", id, ..]) => {
            let answer = urls::serve(api, id, head, body).await?;
            Ok(confine::confine(api, guard::is_by_host(head), answer))
        }
        (&Method::POST, ["2015-03-31", "functions", name, "invocations"]) => {
            invoke::answer(api, name, head, body).await
        }
        (_, ["uncia"]) => page::answer(api, &[], head, body).await,
        (_, ["uncia", rest @ ..]) if matches!(rest, [_] | ["v1", "viewers" | "bills"]) => {
            page::answer(api, rest, head, body).await
        }
        (&Method::POST, [""]) if head.headers.contains_key("x-amz-target") => {
            Ok(machines::answer(api, head, body).await)
        }
        (&Method::POST, ["2021-11-15", "functions", name, "response-streaming-invocations"]) => {
            streams::answer(api, name, head, body).await
        }
        (_, ["uncia", "v1", "triggers", rest @ ..]) => {
            triggers::answer(api, rest, head, &body).await
        }
        (&Method::GET, ["uncia", "v1", rest @ ..]) => logs::answer(api, rest, head).await,
        (&Method::GET, ["metrics"]) => Ok(metrics::answer(api).await),
        // It asks the dispatcher.
        (&Method::GET, ["2019-09-30", "functions", name, "provisioned-concurrency"]) => {
            let (name, query) = (decode(name), head.uri.query().unwrap_or(""));
            if query_values(query, "List").is_empty() {
                provisioned::get(api, &name, query).await
            } else {
                provisioned::list(api, &name, query).await
            }
        }
        // Everything else changes or reads the registry, which waits for the disk.
        (method, ["2015-03-31", "functions"]) => {
            let (api, query) = (api.clone(), head.uri.query().unwrap_or("").to_owned());
            match *method {
                Method::GET => functions::list(&api, &query),
                Method::POST => blocking(move || functions::create(&api, &body)).await,
                _ => Err(unknown()),
            }
        }
        (
            _,
            [
                "2015-03-31" | "2017-10-31" | "2019-09-30" | "2020-06-30" | "2021-10-31",
                "functions",
                ..,
            ]
            | ["2017-03-31", "tags", ..]
            | ["2018-10-31", "layers", ..],
        ) => {
            let (api, method) = (api.clone(), head.method.clone());
            let (path, query) = (path.to_owned(), head.uri.query().unwrap_or("").to_owned());
            blocking(move || managed(&api, &method, &path, &query, &body)).await
        }
        _ => Err(unknown()),
    }
}

fn managed(
    api: &Arc<Api>,
    method: &Method,
    path: &str,
    query: &str,
    body: &[u8],
) -> Result<Answer, ApiError> {
    let parts: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["2015-03-31", "functions", name]) => functions::get(api, name, query),
        ("DELETE", ["2015-03-31", "functions", name]) => functions::delete(api, name, query),
        ("GET", ["2015-03-31", "functions", name, "configuration"]) => {
            functions::get_configuration(api, name, query)
        }
        ("PUT", ["2015-03-31", "functions", name, "configuration"]) => {
            functions::update_configuration(api, name, body)
        }
        ("PUT", ["2015-03-31", "functions", name, "code"]) => {
            functions::update_code(api, name, body)
        }
        ("GET", ["2015-03-31", "functions", name, "versions"]) => versions::list(api, name, query),
        ("POST", ["2015-03-31", "functions", name, "versions"]) => {
            versions::publish(api, name, body)
        }
        ("POST", ["2015-03-31", "functions", name, "aliases"]) => aliases::create(api, name, body),
        ("GET", ["2015-03-31", "functions", name, "aliases"]) => aliases::list(api, name, query),
        ("GET", ["2015-03-31", "functions", name, "aliases", alias]) => {
            aliases::get(api, name, alias)
        }
        ("PUT", ["2015-03-31", "functions", name, "aliases", alias]) => {
            aliases::update(api, name, alias, body)
        }
        ("DELETE", ["2015-03-31", "functions", name, "aliases", alias]) => {
            aliases::delete(api, name, alias)
        }
        ("PUT", ["2019-09-30", "functions", name, "provisioned-concurrency"]) => {
            provisioned::put(api, name, query, body)
        }
        ("DELETE", ["2019-09-30", "functions", name, "provisioned-concurrency"]) => {
            provisioned::delete(api, name, query)
        }
        ("GET", ["2015-03-31", "functions", name, "policy"]) => permissions::get(api, name, query),
        ("POST", ["2015-03-31", "functions", name, "policy"]) => {
            permissions::add(api, name, query, body)
        }
        ("DELETE", ["2015-03-31", "functions", name, "policy", statement]) => {
            permissions::remove(api, name, statement, query)
        }
        ("GET", ["2020-06-30", "functions", name, "code-signing-config"]) => {
            functions::code_signing(api, name)
        }
        ("PUT", ["2017-10-31", "functions", name, "concurrency"]) => {
            concurrency::put(api, name, body)
        }
        ("DELETE", ["2017-10-31", "functions", name, "concurrency"]) => {
            concurrency::delete(api, name)
        }
        ("GET", ["2019-09-30", "functions", name, "concurrency"]) => concurrency::get(api, name),
        (_, ["2021-10-31", "functions", _, "url" | "urls"])
            if query_values(query, "Qualifier").iter().any(|it| it != LATEST) =>
        {
            Err(ApiError::invalid(
                "URLs are the function's on this platform, not an alias's: leave Qualifier out",
            ))
        }
        ("POST", ["2021-10-31", "functions", name, "url"]) => urls::create(api, name, body),
        ("PUT", ["2021-10-31", "functions", name, "url"]) => urls::update(api, name, body),
        ("GET", ["2021-10-31", "functions", name, "url"]) => urls::get(api, name),
        ("DELETE", ["2021-10-31", "functions", name, "url"]) => urls::delete(api, name),
        ("GET", ["2021-10-31", "functions", name, "urls"]) => urls::list(api, name),
        (verb, ["2018-10-31", "layers", rest @ ..]) => match (verb, rest) {
            ("GET", []) => layers::list(api, query),
            ("GET", [name, "versions"]) => layers::list_versions(api, name, query),
            ("POST", [name, "versions"]) => layers::publish(api, name, body),
            ("GET", [name, "versions", number]) => layers::get(api, name, number),
            ("DELETE", [name, "versions", number]) => layers::delete(api, name, number),
            _ => Err(ApiError::no_operation(method, path)),
        },
        (_, ["2017-03-31", "tags", arn @ ..]) => match method.as_str() {
            "GET" => tags::list(api, &arn.join("/")),
            "POST" => tags::tag(api, &arn.join("/"), body),
            "DELETE" => tags::untag(api, &arn.join("/"), query),
            _ => Err(ApiError::no_operation(method, path)),
        },
        _ => Err(ApiError::no_operation(method, path)),
    }
}

/// Operations that may wait for the disk and for each other: half the threads there are for that, so
/// that some are left for others.
const MOST_BLOCKING: usize = 256;

async fn blocking(
    work: impl FnOnce() -> Result<Answer, ApiError> + Send + 'static,
) -> Result<Answer, ApiError> {
    static PLACES: Semaphore = Semaphore::const_new(MOST_BLOCKING);
    // Nobody closes it.
    let _place = PLACES.acquire().await;
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) => Err(ApiError::service(format!("The operation failed: {error}"))),
    }
}

/// Percent-decodes; what is not valid stays as it is.
pub(super) fn decode(text: &str) -> String {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map_or_else(|_| text.to_owned(), Cow::into_owned)
}

/// The decoded values of a key in a query.
pub(crate) fn query_values(query: &str, key: &str) -> Vec<String> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(name, _)| decode(name) == key)
        .map(|(_, value)| decode(&value.replace('+', " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_decoding() {
        assert_eq!(decode("arn%3Aaws"), "arn:aws");
        for odd in ["100%", "%zz", "%f", "%ff", "%+f"] {
            assert_eq!(decode(odd), odd);
        }
        assert_eq!(query_values("tagKeys=a%20b&tagKeys=c+d&x=1", "tagKeys"), ["a b", "c d"]);
    }
}
