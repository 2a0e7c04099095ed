//! The page at `/uncia/`: what runs, live, and what it would have cost.
//!
//! The page is three files of our own, which a browser loads from here alone. What it shows comes as
//! server-sent events ([`live`]): what runs from the [`snapshot`], made once a second for all who watch
//! and not at all if nobody does, and the bills from whoever computes them ([`bills`]), which is
//! `uncia serve`.

mod bills;
mod live;
mod snapshot;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, LOCATION};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::api::{Answer, Api, ApiError, bytes_answer};

pub(crate) use live::{LiveBody, PATH as LIVE_PATH, Page, watch};

/// What a browser does with the page's files: it runs and shows what comes from here, and nothing else.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        http::header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (http::header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-cache"),
];

/// Answers what the page, and whoever computes its bills, asks for; except for the events.
pub(crate) async fn answer(
    api: &Arc<Api>,
    path: &[&str],
    head: &Parts,
    body: Bytes,
) -> Result<Answer, ApiError> {
    match (&head.method, path) {
        // Its files have relative addresses.
        (&Method::GET, []) if !head.uri.path().ends_with('/') => Ok(redirect("/uncia/")),
        (&Method::GET, []) => {
            Ok(file("text/html; charset=utf-8", include_bytes!("assets/index.html")))
        }
        (&Method::GET, ["page.css"]) => {
            Ok(file("text/css; charset=utf-8", include_bytes!("assets/page.css")))
        }
        (&Method::GET, ["page.js"]) => {
            Ok(file("text/javascript; charset=utf-8", include_bytes!("assets/page.js")))
        }
        (&Method::GET, ["v1", "viewers"]) => {
            bills::check_owner(head)?;
            bills::viewers(api, head).await
        }
        (&Method::PUT, ["v1", "bills"]) => {
            bills::check_owner(head)?;
            bills::put(api, &body)
        }
        _ => Err(ApiError::no_operation(&head.method, head.uri.path())),
    }
}

fn file(content_type: &'static str, bytes: &'static [u8]) -> Answer {
    let mut answer = bytes_answer(content_type, Bytes::from_static(bytes));
    put_headers(answer.headers_mut());
    answer
}

fn put_headers(headers: &mut http::HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn redirect(to: &'static str) -> Answer {
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::PERMANENT_REDIRECT;
    answer.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    answer
}

#[cfg(test)]
mod tests {
    /// What a browser loads at most, in bytes.
    const MAX_WEIGHT: usize = 200_000;

    #[test]
    fn the_page_is_light_and_loads_nothing_from_elsewhere() {
        let files = [
            include_str!("assets/index.html"),
            include_str!("assets/page.css"),
            include_str!("assets/page.js"),
        ];
        assert!(files.iter().map(|file| file.len()).sum::<usize>() <= MAX_WEIGHT);
        for file in files {
            let elsewhere = file.replace("http://www.w3.org/", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"));
            // Names and errors are data of users: they are text, and never markup.
            assert!(!file.contains("innerHTML") && !file.contains("insertAdjacentHTML"));
        }
        // What the policy of the page's headers forbids.
        assert!(!files[0].contains("<style") && !files[0].contains("<script>"));
    }
}
