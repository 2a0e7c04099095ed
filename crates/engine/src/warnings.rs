//! What the parts of the engine warn of, as lines on stderr.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::output::Messages;

/// Lines that wait to be written; more are dropped.
const MOST_WAITING: usize = 1_024;
/// What is left at the end may take this long to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// What the thread that writes is sent.
enum Line {
    Text(String),
    /// Answered once all before it is written.
    Flush(SyncSender<()>),
}

/// Writes warnings and errors to stderr until it is dropped.
pub(crate) struct Printer(SyncSender<Line>);

/// Writes warnings and errors to stderr from now on; each carries the fields of the spans around it.
/// A thread of their own writes them: if nobody reads what it writes, nobody else waits for it.
pub(crate) fn print(messages: Messages) -> Printer {
    let (lines, written) = sync_channel(MOST_WAITING);
    // Without room for a thread, warnings are lost.
    let _ = std::thread::Builder::new().name("warnings".to_owned()).spawn(move || {
        for line in written {
            match line {
                // Without a stderr nobody listens.
                Line::Text(line) => drop(writeln!(std::io::stderr().lock(), "{line}")),
                Line::Flush(done) => drop(done.send(())),
            }
        }
    });
    let subscriber = tracing_subscriber::registry().with(Lines(lines.clone(), messages));
    // Nothing else sets one.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Printer(lines)
}

impl Drop for Printer {
    fn drop(&mut self) {
        let (done, flushed) = sync_channel(1);
        if self.0.try_send(Line::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

struct Lines(SyncSender<Line>, Messages);

/// The fields of a span or event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{value:?}");
        self.0.insert(field.name().to_owned(), text.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("uncia")
    }

    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        id: &tracing::span::Id,
        context: Context<'_, S>,
    ) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Map::new();
        for span in context
            .event_scope(event)
            .into_iter()
            .flat_map(tracing_subscriber::registry::Scope::from_root)
        {
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.extend(fields.0.clone());
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        line.extend(fields.0);
        // Where nobody reads, the newest are lost.
        let _ = self.0.try_send(Line::Text(format(self.1, line)));
    }
}

/// A warning as a line; the field `message` is its sentence.
fn format(messages: Messages, mut fields: Map<String, Value>) -> String {
    if messages == Messages::Json {
        fields.insert("event".to_owned(), json!("warning"));
        return Value::Object(fields).to_string();
    }
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let message = fields.remove("message").map(text).unwrap_or_default();
    let details: Vec<_> =
        fields.into_iter().map(|(name, value)| format!("{name} {}", text(value))).collect();
    let details =
        if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
    format!("warning: {message}{details}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_a_sentence_for_people_and_an_event_for_programs() {
        let fields = || {
            let fields = json!({"message": "it is late", "instance": "i-1", "tries": 2});
            let Value::Object(fields) = fields else { unreachable!() };
            fields
        };
        let text = format(Messages::Text, fields());
        assert_eq!(text, "warning: it is late (instance i-1, tries 2)");
        let line: Value = serde_json::from_str(&format(Messages::Json, fields())).unwrap();
        assert_eq!((&line["event"], &line["message"]), (&json!("warning"), &json!("it is late")));
    }
}
