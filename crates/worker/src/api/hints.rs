//! What a request says of those to come: `x-uncia-next: in=1.5s, count=3, within=100ms`.
//!
//! The header is the platform's: functions do not see it. Invoke takes it too as `x-uncia-next` under `custom`
//! of the client context, which is what boto3 can send. Requests invoke with a hint that cannot be read as they
//! do without; what became of it is said in the header `x-uncia-hint` of the answer.

use std::fmt::Display;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use serde_json::Value;
use tokio::sync::oneshot;
use uncia_policy::{Hint, HintAnswer, Nanos};

use super::Api;
use super::invoke;
use crate::dispatch::GivenHint;

/// What comes next.
pub(super) const NEXT_HEADER: &str = "x-uncia-next";
/// What became of that.
const HINT_HEADER: &str = "x-uncia-hint";

/// The longest hint, in bytes.
const MAX_LENGTH: usize = 256;
const TURNED_AWAY: &str = "ignored: its request was turned away";
const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// What is to be said of a hint in the answer to its request.
pub(super) enum Said {
    /// There was none.
    Nothing,
    Refused(String),
    Given(oneshot::Receiver<HintAnswer>),
}

impl Said {
    /// Puts it into the answer's headers; by then it is known.
    pub(super) async fn put(self, headers: &mut HeaderMap) {
        let text = match self {
            Self::Nothing => return,
            Self::Refused(why) => why,
            Self::Given(answer) => {
                answer.await.map_or_else(|_| TURNED_AWAY.to_owned(), |it| it.to_string())
            }
        };
        invoke::put(headers, HINT_HEADER, &text);
    }
}

/// The hint in a request's headers or client context, and what is to be said of it.
pub(super) fn read(
    api: &Api,
    headers: &HeaderMap,
    client_context: Option<&str>,
) -> (Option<GivenHint>, Said) {
    let text = match headers.get(NEXT_HEADER) {
        Some(value) => Some(String::from_utf8_lossy(value.as_bytes()).into_owned()),
        None => client_context.and_then(in_context),
    };
    // A client that knows of nothing to come may say so.
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return (None, Said::Nothing);
    };
    match parse(&text) {
        Ok(hint) => {
            let (answer, answered) = oneshot::channel();
            (Some(GivenHint { hint, answer }), Said::Given(answered))
        }
        Err(why) => {
            api.dispatcher.hints().note(false);
            (None, Said::Refused(format!("refused: {why}")))
        }
    }
}

/// The hint in a client context; what is not one has none.
fn in_context(context: &str) -> Option<String> {
    // Most contexts are of others.
    let context: Value = serde_json::from_slice(&STANDARD.decode(context).ok()?).ok()?;
    let hint = context.get("custom")?.get(NEXT_HEADER)?;
    Some(hint.as_str().map_or_else(|| hint.to_string(), str::to_owned))
}

fn parse(text: &str) -> Result<Hint, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("a hint has {MAX_LENGTH} bytes at most, not {}", text.len()));
    }
    let (mut after, mut within, mut count) = (None, None, None);
    for part in text.split(',') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (key.trim(), value.trim());
        match key {
            "in" => set(&mut after, key, delay(value))?,
            "within" => set(&mut within, key, tolerance(value))?,
            "count" => set(&mut count, key, number(value))?,
            _ => {
                return Err(format!(
                    "it has {}, and a hint is in=DURATION, count=NUMBER, within=DURATION",
                    quoted(key)
                ));
            }
        }
    }
    let after = after.ok_or("it does not say in how long: in=1.5s")?;
    Ok(Hint { after, within, count: count.unwrap_or(1) })
}

/// Sets what a key says, once.
fn set<T>(to: &mut Option<T>, key: &str, value: Result<T, impl Display>) -> Result<(), String> {
    let value = value.map_err(|why| format!("{key} {why}"))?;
    if to.replace(value).is_some() { Err(format!("{key} is there twice")) } else { Ok(()) }
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("is 0: no request comes".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("is a whole number, such as 3, not {}", quoted(text))),
    }
}

/// In how long.
fn delay(text: &str) -> Result<Nanos, String> {
    if text.starts_with('-') {
        return Err(format!("is {}, in the past", quoted(text)));
    }
    duration(text)
}

/// How much earlier or later.
fn tolerance(text: &str) -> Result<Nanos, String> {
    if text.starts_with('-') {
        return Err(format!("is {}, below 0", quoted(text)));
    }
    duration(text)
}

/// A time such as `1.5s`, in ns; digits below a nanosecond are cut off.
fn duration(text: &str) -> Result<Nanos, String> {
    let digits = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    let (amount, unit) = text.split_at(digits);
    let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim());
    let (Some((_, ns)), false, false) = (unit, whole.is_empty(), part.contains('.')) else {
        return Err(format!("is a time, such as 1.5s or 200ms, not {}", quoted(text)));
    };
    let too_long = || format!("is {}, which is too long", quoted(text));
    let whole: u64 = whole.parse().map_err(|_| too_long())?;
    let whole = whole.checked_mul(*ns).ok_or_else(too_long)?;
    // 18 digits times an hour fit in 128 bits.
    let part = &part[..part.len().min(18)];
    let of_one =
        part.parse::<u128>().unwrap_or(0) * u128::from(*ns) / 10_u128.pow(part.len() as u32);
    Ok(whole.saturating_add(u64::try_from(of_one).unwrap_or(u64::MAX)))
}

/// What a client wrote, as a header may repeat it.
fn quoted(text: &str) -> String {
    let mut fine: String = text.chars().take(40).collect();
    fine.retain(|it| it.is_ascii_graphic() || it == ' ');
    format!("\"{fine}\"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn hints_say_when_how_many_and_how_exactly() {
        let hint = |after, within, count| Ok(Hint { after, within, count });
        assert_eq!(parse("in=1.5s, count=3"), hint(1_500 * MS, None, 3));
        assert_eq!(parse("count=1,within=20ms,in=0s"), hint(0, Some(20 * MS), 1));
        assert_eq!(parse("in=2m"), hint(120_000 * MS, None, 1));
        assert_eq!(parse("in=0.000000001s"), hint(1, None, 1));
        assert_eq!(parse("in=1.0000000005s"), hint(1_000 * MS, None, 1));
        assert_eq!(parse("in=8784h, count=1000000"), hint(8_784 * 3_600_000 * MS, None, 1_000_000));
    }

    #[test]
    fn what_is_no_hint_is_refused_with_the_reason() {
        for (text, why) in [
            ("in=soon", "in is a time"),
            ("in=1e3s", "in is a time"),
            ("in=NaNs", "in is a time"),
            ("in=1.2.3s", "in is a time"),
            ("in=.5s", "in is a time"),
            ("in=5", "in is a time"),
            ("in=-1s", "in the past"),
            ("in=99999999999999999999s", "too long"),
            ("in=6000000h", "too long"),
            ("in=1s, count=many", "count is a whole number"),
            ("in=1s, count=1.5", "count is a whole number"),
            ("in=1s, count=-3", "count is a whole number"),
            ("in=1s, count=99999999999", "count is a whole number"),
            ("in=1s, count=0", "no request comes"),
            ("in=1s, in=2s", "twice"),
            ("count=3", "in how long"),
            ("at=noon", "\"at\""),
            ("1.5s", "\"1.5s\""),
            ("in=1s, within=-1s", "within is \"-1s\", below 0"),
            (",", "\"\""),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(why), "{text}: {message}");
        }
        assert!(parse(&"in=1s,".repeat(100)).unwrap_err().contains("bytes"));
    }

    #[test]
    fn boto3_says_it_in_the_client_context() {
        let encoded = |text: &str| STANDARD.encode(text);
        let hint = r#"{"custom": {"x-uncia-next": "in=1s"}, "env": {}}"#;
        assert_eq!(in_context(&encoded(hint)).as_deref(), Some("in=1s"));
        for other in ["{}", "[]", r#"{"custom": 3}"#, "no json"] {
            assert_eq!(in_context(&encoded(other)), None);
        }
        assert_eq!(in_context(&encoded(r#"{"custom":{"x-uncia-next":5}}"#)).as_deref(), Some("5"));
        assert_eq!(in_context("no base64"), None);
    }

    proptest! {
        /// Whatever is written, the answer is a hint or a sentence that a header can hold.
        #[test]
        fn nothing_that_is_written_does_harm(text in "\\PC{0,60}|(in|count|within|=|,|[0-9.]{1,30}|[a-z-]){1,12}") {
            if let Err(why) = parse(&text) {
                prop_assert!(http::HeaderValue::from_str(&why).is_ok(), "{}", why);
            }
        }
    }
}
