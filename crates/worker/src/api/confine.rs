//! What is added to the answers of functions, and taken from them, since their addresses are the
//! platform's own.
//!
//! A browser takes a page at `/url/ID/` for one of the same origin as `/uncia/`: it could read what is there as
//! whoever looks at it, and ask for the token in the platform's name. So pages get an origin of their own,
//! whatever the function says, since of several policies each holds (Content Security Policy Level 3,
//! sections 4.2 and 6.3.2; HTML, "sandboxed origin browsing context flag").

use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::Api;
use super::error::Answer;

/// All that a page may do but to be of the platform's origin, and to lead what it is shown in elsewhere.
/// What it opens is confined as it is.
const SANDBOX: &str = "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-scripts";

/// Types that no browser shows as a page with scripts, or takes for another that it does (MIME Sniffing).
const WITHOUT_SCRIPTS: [&str; 6] = [
    "application/javascript",
    "application/json",
    "application/pdf",
    "text/css",
    "text/javascript",
    "text/plain",
];
const MEDIA: [&str; 4] = ["audio/", "font/", "image/", "video/"];

/// The answer of a function as the platform gives it. At a host of its own a function's pages have an origin of their
/// own without more.
pub(super) fn confine(api: &Api, has_own_host: bool, mut answer: Answer) -> Answer {
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let headers = answer.headers_mut();
        if !has_own_host {
            confine_pages(headers);
        }
        if api.is_guarded {
            headers.remove(WWW_AUTHENTICATE);
        }
    }
    answer
}

fn confine_pages(headers: &mut HeaderMap) {
    if may_be_a_page(headers) {
        headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    }
}

/// Whether a browser may show an answer as a page whose scripts it runs.
fn may_be_a_page(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(named), None) = (types.next(), types.next()) else { return true };
    // Of several in a line, browsers may take any.
    let Some(named) = named.to_str().ok().filter(|it| !it.contains(',')) else { return true };
    let essence = named.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_medium =
        MEDIA.iter().any(|medium| essence.starts_with(medium)) && !essence.ends_with("+xml");
    !is_medium && !WITHOUT_SCRIPTS.contains(&essence.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_may_be_a_page_is_confined() {
        for (types, is_confined) in [
            (&[][..], true),
            (&[""], true),
            (&["text/html"], true),
            (&["TEXT/HTML; charset=utf-8"], true),
            (&["application/xhtml+xml"], true),
            (&["text/xml"], true),
            (&["image/svg+xml; charset=utf-8"], true),
            (&["multipart/x-mixed-replace; boundary=x"], true),
            (&["unknown/unknown"], true),
            (&["application/octet-stream"], true),
            (&["application/json", "text/html"], true),
            (&["application/json, text/html"], true),
            (&["application/json"], false),
            (&["Application/JSON; charset=utf-8"], false),
            (&["text/plain"], false),
            (&["image/png"], false),
        ] {
            let mut headers = HeaderMap::new();
            for it in types {
                headers.append(CONTENT_TYPE, it.parse().unwrap());
            }
            let given = "default-src 'self'; sandbox allow-same-origin";
            headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(given));
            confine_pages(&mut headers);
            let policies: Vec<_> = headers.get_all(CONTENT_SECURITY_POLICY).iter().collect();
            let expected = if is_confined { vec![given, SANDBOX] } else { vec![given] };
            assert_eq!(policies, expected, "{types:?}");
        }
    }
}
