//! The file-descriptor limit, looked at before the run and not in its middle.

use uncia_process::descriptors;

use super::schedule::Extent;
use crate::error::LoadError;

/// Files that a run has open besides its connections: standard streams, tables, poller, wake-ups.
const OTHER_FILES: u64 = 32;

/// Raises the soft limit to the hard one when the schedule may need it. A schedule that can't be
/// kept even so is an error; one that can't be kept if answers are slow gets a warning.
pub(super) fn provide(
    extent: &Extent,
    max_connections: Option<usize>,
) -> Result<Option<String>, LoadError> {
    let most = max_connections.map_or(u64::MAX, |limit| limit as u64);
    let simultaneous = extent.simultaneous.min(most);
    let in_flight = extent.in_flight.min(most);
    let worst = in_flight + OTHER_FILES;
    let limit = match descriptors::limit() {
        Some(soft) if worst > soft => descriptors::raise_limit(),
        limit => limit,
    };
    let Some(allowed) = limit else {
        return Ok(None);
    };
    if simultaneous + OTHER_FILES > allowed {
        return Err(LoadError::DescriptorLimit { simultaneous, limit: allowed });
    }
    Ok((worst > allowed).then(|| {
        format!(
            "if answers take as long as the total timeout, {in_flight} requests are in flight at \
             once, but this process may have {allowed} files open: requests beyond that will fail; \
             raise the hard limit (`ulimit -Hn`), shorten total_timeout_ns, or lower max_connections"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_any_limit_is_an_error_and_a_slow_worst_case_a_warning() {
        let Some(hard) = descriptors::raise_limit() else {
            return;
        };
        let few = Extent { total: 1, simultaneous: 1, in_flight: 1, ..Extent::default() };
        assert!(provide(&few, None).unwrap().is_none());
        let slow = Extent { in_flight: hard, ..few };
        let warning = provide(&slow, None).unwrap().unwrap();
        assert!(warning.contains("ulimit -Hn"), "{warning}");
        let many = Extent { simultaneous: hard, in_flight: hard, ..few };
        let error = provide(&many, None).unwrap_err().to_string();
        assert!(error.contains(&hard.to_string()), "{error}");
        assert!(provide(&many, Some(1)).unwrap().is_none());
    }
}
