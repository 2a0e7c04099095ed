//! Lists that come in pages.

use http::StatusCode;
use serde_json::{Value, json};

use super::error::{Answer, ApiError, json_answer};
use super::route::query_values;

/// Most rows of a page, as on Lambda.
const MAX_ITEMS: usize = 50;

/// A page of `rows`, which are in the order of their markers: those after the request's `Marker`, at
/// most `MaxItems` of them.
pub(super) fn answer(
    key: &str,
    rows: impl Iterator<Item = (String, Value)>,
    query: &str,
) -> Result<Answer, ApiError> {
    let most = match query_values(query, "MaxItems").first() {
        None => MAX_ITEMS,
        Some(text) => match text.parse() {
            Ok(number @ 1..=10_000) => usize::min(number, MAX_ITEMS),
            _ => {
                return Err(ApiError::invalid(format!(
                    "MaxItems must be 1 to 10000, not {text:?}"
                )));
            }
        },
    };
    let after = query_values(query, "Marker").into_iter().next();
    let mut rows = rows.filter(|(marker, _)| after.as_ref().is_none_or(|after| marker > after));
    let mut last = String::new();
    let page: Vec<Value> = (rows.by_ref().take(most))
        .map(|(marker, row)| {
            last = marker;
            row
        })
        .collect();
    let mut body = json!({ key: page });
    if rows.next().is_some() {
        body["NextMarker"] = json!(last);
    }
    Ok(json_answer(StatusCode::OK, &body))
}
