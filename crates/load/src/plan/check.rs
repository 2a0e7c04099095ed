//! Checks of what a configuration says for all streams alike.

use std::path::Path;

use uncia_arrivals::{MAX_SPAN_NS, RandomStream};

use crate::config::{Config, ConnectionPolicy, Field, Share, StopRules, Stream};
use crate::error::LoadError;

/// That the pool of all endpoints fits the limit of connections.
pub(super) fn pool(config: &Config, endpoints: usize) -> Result<(), LoadError> {
    let (ConnectionPolicy::Pool(wanted), Some(limit)) =
        (config.connections, config.max_connections)
    else {
        return Ok(());
    };
    let wanted = wanted as u64 * endpoints as u64;
    if wanted > limit as u64 {
        return Err(LoadError::PoolAboveLimit { wanted, limit });
    }
    Ok(())
}

/// That times and counts are within their bounds.
pub(super) fn times(config: &Config) -> Result<(), LoadError> {
    let positive = |key, value: i64| match value {
        ..=0 => Err(LoadError::OutOfRange { key, value, rule: "above zero" }),
        _ if value > MAX_SPAN_NS => {
            Err(LoadError::OutOfRange { key, value, rule: "at most 100 years" })
        }
        _ => Ok(()),
    };
    let not_negative = |key, value: i64| match value {
        0 => Ok(()),
        _ if value < 0 => Err(LoadError::OutOfRange { key, value, rule: "zero or more" }),
        _ => positive(key, value),
    };
    positive("connect_timeout_ns", config.connect_timeout_ns)?;
    positive("total_timeout_ns", config.total_timeout_ns)?;
    not_negative("drain_timeout_ns", config.drain_timeout_ns.unwrap_or(0))?;
    not_negative("spin_ns", config.spin_ns.unwrap_or(0))?;
    for (key, value) in
        [("epoch_unix_ns", config.epoch_unix_ns), ("start_unix_ns", config.start_unix_ns)]
    {
        if let Some(value @ ..0) = value {
            return Err(LoadError::OutOfRange { key, value, rule: "zero or more" });
        }
    }
    if config.max_connections == Some(0) {
        return Err(LoadError::OutOfRange {
            key: "max_connections",
            value: 0,
            rule: "at least 1, or left out",
        });
    }
    if let Some(timeout_ns) = config.first_byte_timeout_ns {
        positive("first_byte_timeout_ns", timeout_ns)?;
    }
    for stream in &config.streams {
        not_negative("start_ns", stream.start_ns)?;
        if let Some(after) = &stream.after {
            not_negative("after.think_ns", after.think_ns)?;
            most("after.think_max_ns", after.think_ns, after.think_max_ns)?;
        }
        if let Some(closed) = &stream.closed {
            positive("closed.clients", closed.clients.into())?;
            not_negative("closed.think_ns", closed.think_ns)?;
            most("closed.think_max_ns", closed.think_ns, closed.think_max_ns)?;
            positive("closed.duration_ns", closed.duration_ns)?;
            if closed.requests == Some(0) {
                return Err(LoadError::OutOfRange {
                    key: "closed.requests",
                    value: 0,
                    rule: "at least 1, or left out",
                });
            }
        }
    }
    Ok(())
}

fn most(key: &'static str, least: i64, most: Option<i64>) -> Result<(), LoadError> {
    match most {
        Some(value) if value < least => {
            Err(LoadError::OutOfRange { key, value, rule: "at least think_ns" })
        }
        Some(value) if value > MAX_SPAN_NS => {
            Err(LoadError::OutOfRange { key, value, rule: "at most 100 years" })
        }
        _ => Ok(()),
    }
}

/// That there is such a share, and that stop rules mean something.
pub(super) fn share_and_rules(config: &Config) -> Result<(), LoadError> {
    let Share { index, of } = config.share;
    if index >= of {
        return Err(LoadError::Share { index, of });
    }
    let StopRules { error_budget, lag_p99_ns, slowdown } = config.stop_rules;
    if let Some(value) = error_budget.filter(|budget| !(0.0..=1.0).contains(budget)) {
        let rule = "between 0 and 1, a share of all requests";
        return Err(LoadError::StopRule { key: "error_budget", value, rule });
    }
    if let Some(value) = slowdown.filter(|factor| !(factor.is_finite() && *factor > 1.0)) {
        return Err(LoadError::StopRule { key: "slowdown", value, rule: "a number above 1" });
    }
    if let Some(value @ ..=0) = lag_p99_ns {
        let key = "stop_rules.lag_p99_ns";
        return Err(LoadError::OutOfRange { key, value, rule: "above zero" });
    }
    Ok(())
}

/// That each column of a stream, whose arrivals are valid, has a value for each request.
pub(super) fn columns(stream: &Stream, label: &str, seed: u64) -> Result<(), LoadError> {
    let mut requests = None;
    for (name, field) in &stream.fields {
        let Field::Column { values } = field else {
            continue;
        };
        let wrong = |reason| LoadError::Field {
            stream: stream.function.clone(),
            name: name.clone(),
            reason,
        };
        let Some(process) = &stream.arrivals else {
            let reason =
                "a column is for arrivals: answers decide how many requests there are here";
            return Err(wrong(reason.to_owned()));
        };
        let count = || process.arrivals(RandomStream::new(seed, label)).count();
        let requests = *requests.get_or_insert_with(count);
        if values.len() != requests {
            let values = values.len();
            return Err(wrong(format!("it has {values} values for {requests} requests")));
        }
    }
    Ok(())
}

/// That a table can be written there.
pub(super) fn output(path: &Path) -> Result<(), LoadError> {
    if path.extension().is_none_or(|extension| extension != "arrows") {
        return Err(LoadError::OutName { path: path.to_owned() });
    }
    if path.exists() {
        return Err(LoadError::OutExists { path: path.to_owned() });
    }
    Ok(())
}
